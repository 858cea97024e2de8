from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import sluicegate.limits.permits as face
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.permit import Permit as PermitContract
from sluicegate.limits.glass.break_glass import ALL, Glass, GlassView, Opening
from sluicegate.limits.permit import KeyPermit
from sluicegate.limits.permits import Permits
from sluicegate.stores.memory.permits import MemoryPermits
from sluicegate.testing import HandClock

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

SECOND = 1_000_000
MINUTE = 60 * SECOND


def until(ready: Callable[[], object], what: str) -> None:
    """Look until it is so; what threads and servers do is a moment late, never long."""
    pause = threading.Event()
    for _ in range(20_000):
        if ready():
            return
        pause.wait(0.001)
    raise AssertionError(what)


def reason(decision: Decision) -> str:
    return "" if decision.reason is None else decision.reason.name


def holds(permit: KeyPermit) -> bool:
    """Whether it does now; a type checker believes a property to stay as it was."""
    return permit.active


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


# In this process.


def test_so_many_are_held_at_once_and_the_next_is_refused_by_name(clock: HandClock) -> None:
    exports = Permits(2, expires_after_s=60, clock=clock)
    one, two = exports.acquire("ann"), exports.acquire("ann")
    assert one
    assert two
    assert (one.decision.remaining, two.decision.remaining) == (1, 0)
    clock.advance(s=20)
    refused = exports.acquire("ann")
    assert not refused
    assert reason(refused.decision) == "concurrency_limited"
    assert refused.decision.retry_after_us == 40 * SECOND
    assert refused.decision.rule_id == "2-at-once"
    assert exports.acquire("bob")
    assert one.release()
    assert exports.acquire("ann")


def test_a_permit_ends_once_and_a_refused_one_has_ended(clock: HandClock) -> None:
    exports = Permits(1, clock=clock)
    permit = exports.acquire("ann")
    refused = exports.acquire("ann")
    assert holds(permit)
    assert not refused.active
    assert not refused.release()
    assert not refused.renew()
    assert permit.release()
    assert not holds(permit)
    assert not permit.release()
    assert not permit.renew()
    assert repr(permit) == "<Permit ended: 1 of '1-at-once' for 'ann'>"


def test_it_is_a_permit_of_the_contract(clock: HandClock) -> None:
    permit: PermitContract = Permits(1, clock=clock).acquire("ann")
    assert permit.end(Outcome.DROPPED, clock.now_us())
    assert not permit.end(Outcome.SUCCESS, clock.now_us())


def test_an_expired_permit_says_so_and_its_late_release_frees_nobody_elses_place(
    clock: HandClock,
) -> None:
    exports = Permits(1, expires_after_s=60, clock=clock)
    late = exports.acquire("ann")
    clock.advance(s=60)
    assert not late.active
    other = exports.acquire("ann")
    assert other
    assert not late.renew()
    assert not late.release()
    assert other.active
    assert not exports.acquire("ann")


def test_a_renewed_permit_is_held_for_the_whole_time_from_then(clock: HandClock) -> None:
    exports = Permits(1, expires_after_s=60, clock=clock)
    permit = exports.acquire("ann")
    for _ in range(5):
        clock.advance(s=59)
        assert permit.renew()
    clock.advance(s=59)
    assert permit.active
    assert not exports.acquire("ann")
    assert permit.release()


def test_heavy_permits_and_what_can_never_be_admitted(clock: HandClock) -> None:
    exports = Permits(5, clock=clock)
    permit = exports.acquire("ann", 3)
    assert exports.peek("ann", 2)
    assert not exports.peek("ann", 3)
    never = exports.acquire("ann", 6)
    assert reason(never.decision) == "cost_above_limit"
    assert never.decision.retry_after_us == -1
    assert permit.release()
    assert exports.acquire("ann", 5).decision.remaining == 0


def test_a_block_holds_and_gives_back_however_it_ends(clock: HandClock) -> None:
    exports = Permits(1, clock=clock)
    hold = exports.hold("ann")
    with hold as permit:
        assert permit.active
        with pytest.raises(Refused) as refused, exports.hold("ann"):
            raise AssertionError
        assert reason(refused.value.decision) == "concurrency_limited"
        with pytest.raises(RuntimeError, match="entered already"), hold:
            raise AssertionError
    with pytest.raises(ZeroDivisionError), hold:
        raise ZeroDivisionError
    assert exports.acquire("ann")


def test_an_async_block_does_likewise(clock: HandClock) -> None:
    async def story() -> None:
        exports = Permits(1, clock=clock)
        async with exports.hold("ann") as permit:
            assert permit.active
            assert not await exports.apeek("ann")
            with pytest.raises(Refused):
                async with exports.hold("ann"):
                    raise AssertionError
        other = await exports.aacquire("ann")
        assert await other.arenew()
        assert await other.arelease()
        assert not await other.arelease()
        await exports.aclose()

    asyncio.run(story())


def test_a_function_holds_a_permit_while_it_runs(clock: HandClock) -> None:
    exports = Permits(3, clock=clock)
    remainders: list[int] = []

    @exports.limit(key=lambda name, places=1: name, count=lambda name, places=1: places)
    def export(name: str, places: int = 1) -> str:
        """Tell how many are left."""
        remainders.append(exports.peek(name).remaining)
        return name.upper()

    @exports.limit(key="everybody")
    async def work() -> int:
        return exports.peek("everybody").remaining

    assert export("ann", places=2) == "ANN"
    assert remainders == [1]
    assert export.__name__ == "export"
    with pytest.raises(Refused):
        export("ann", places=4)
    assert asyncio.run(work()) == 2
    assert exports.peek("everybody").remaining == 3


def test_a_generator_cannot_be_limited_since_it_works_after_the_call() -> None:
    def rows() -> object:
        yield 1

    with pytest.raises(BadValue, match="inside it"):
        Permits(1).limit(key="a")(rows)


def test_bad_values_are_told_with_what_would_be_right() -> None:
    for options, match in (
        ({"limit": 0}, "limit"),
        ({"limit": 1, "expires_after_s": 0}, "expires_after_s"),
        ({"limit": 1, "expires_after_s": float("nan")}, "expires_after_s"),
        ({"limit": 1, "poll_s": 0}, "poll_s"),
        ({"limit": 1, "local_share": 2}, "local_share"),
        ({"limit": 1, "keys_max": 0}, "keys_max"),
        ({"limit": 1, "waiters_max": 0}, "waiters_max"),
        ({"limit": 1, "failure": "maybe"}, "failure"),
        ({"limit": 1, "name": "a{b"}, "name"),
        ({"limit": 1, "store_url": "redis"}, "store_url"),
    ):
        with pytest.raises(BadValue, match=match):
            Permits(**options)
    exports = Permits(1)
    for count in (0, 1_001, "two", 1.5):
        with pytest.raises(BadValue, match="count"):
            exports.acquire("ann", count)  # type: ignore[arg-type]
    for wait_s in (-1.0, float("nan")):
        with pytest.raises(BadValue, match="wait_s"):
            exports.hold("ann", wait_s=wait_s)
    with pytest.raises(BadValue, match="key"):
        exports.limit(key=5)  # type: ignore[arg-type]


# Many keys.


def test_a_key_that_holds_nothing_is_forgotten_and_one_that_expired_when_the_next_comes(
    clock: HandClock,
) -> None:
    exports = Permits(1, expires_after_s=60, clock=clock)
    memory = exports._memory
    exports.acquire("ann").release()
    assert len(memory) == 0
    for number in range(10):
        exports.acquire(f"user {number}")
    clock.advance(s=60)
    for _ in range(10):
        exports.acquire("bob").release()
    assert len(memory) == 0


def test_what_is_held_is_never_forgotten_to_make_room(clock: HandClock) -> None:
    exports = Permits(2, expires_after_s=60, keys_max=2, clock=clock)
    first = exports.acquire("ann")
    clock.advance(s=10)
    exports.acquire("bob")
    clock.advance(s=10)
    assert first.renew()  # now bob's is the first key to come to rest
    refused = exports.acquire("eve")
    assert reason(refused.decision) == "keys_exhausted"
    assert refused.decision.retry_after_us == 50 * SECOND
    clock.advance(s=10)
    exports.acquire("bob")  # and now ann's
    assert exports.acquire("eve").decision.retry_after_us == 50 * SECOND
    exports.acquire("ann")
    # A key is at rest when its last permit has ended, and bob's last was at the same instant.
    assert exports.acquire("eve").decision.retry_after_us == 60 * SECOND
    assert reason(exports.acquire("ann").decision) == "concurrency_limited"
    clock.advance(s=60)
    assert exports.acquire("eve")


# Who waits.


def test_who_waits_is_admitted_when_the_earliest_expires(clock: HandClock) -> None:
    exports = Permits(2, expires_after_s=60, clock=clock)
    began = clock.now_us()
    exports.acquire("ann")
    clock.advance(s=10)
    exports.acquire("ann")
    assert exports.acquire("ann", wait_s=float("inf"))
    assert clock.now_us() == began + MINUTE


def test_who_waits_in_vain_is_refused_at_the_end_and_not_before(clock: HandClock) -> None:
    exports = Permits(1, expires_after_s=60, clock=clock)
    exports.acquire("ann")
    began = clock.now_us()
    refused = exports.acquire("ann", wait_s=2)
    assert clock.now_us() == began + 2 * SECOND
    assert reason(refused.decision) == "concurrency_limited"
    assert refused.decision.retry_after_us == 58 * SECOND
    assert reason(exports.acquire("ann", 2, wait_s=5).decision) == "cost_above_limit"
    assert clock.now_us() == began + 2 * SECOND


def test_a_release_wakes_those_who_wait_in_the_order_in_which_they_came() -> None:
    async def story() -> None:
        exports = Permits(1, expires_after_s=600)
        permit = exports.acquire("ann")
        order: list[int] = []

        async def one(number: int) -> None:
            async with exports.hold("ann", wait_s=60):
                order.append(number)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(one(number))
            while exports.waiting() < 10:
                await asyncio.sleep(0)
            permit.release()
        assert order == list(range(10))
        assert exports.waiting() == 0
        assert not exports._first

    asyncio.run(story())


def test_threads_wait_too_and_never_more_than_the_limit_work() -> None:
    exports = Permits(3, expires_after_s=600)
    working: list[None] = []
    most = [0]

    def work() -> None:
        for _ in range(30):
            with exports.hold("ann", wait_s=60):
                working.append(None)
                most[0] = max(most[0], len(working))
                working.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert 1 <= most[0] <= 3
    assert exports.peek("ann").remaining == 3
    assert not exports._first


def test_a_full_line_takes_nobody_in() -> None:
    exports = Permits(1, expires_after_s=600, waiters_max=1)
    permit = exports.acquire("ann")
    got: list[KeyPermit] = []
    thread = threading.Thread(target=lambda: got.append(exports.acquire("ann", wait_s=60)))
    thread.start()
    until(lambda: exports.waiting() == 1, "the thread waits")
    assert reason(exports.acquire("ann", wait_s=60).decision) == "line_full"
    permit.release()
    thread.join(60)
    assert got[0].active


def test_who_never_comes_to_the_head_of_the_line_is_refused_as_too_late() -> None:
    async def story() -> None:
        exports = Permits(1, expires_after_s=600)
        permit = exports.acquire("ann")
        first = asyncio.create_task(exports.aacquire("ann", wait_s=60))
        while exports.waiting() < 1:
            await asyncio.sleep(0)
        late = await exports.aacquire("ann", wait_s=0.01)
        assert reason(late.decision) == "wait_timeout"
        assert not late.release()
        permit.release()
        assert (await first).active

    asyncio.run(story())


def test_a_waiter_that_is_cancelled_leaves_the_line_and_takes_nothing() -> None:
    async def story() -> None:
        exports = Permits(1, expires_after_s=600)
        permit = exports.acquire("ann")
        waiting = asyncio.create_task(exports.aacquire("ann", wait_s=60))
        while exports.waiting() < 1:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        permit.release()
        assert await exports.aacquire("ann")

    asyncio.run(story())


# A store that is elsewhere, and one that does not answer.


class Elsewhere:
    """A store that others share, which may be gone, and that counts what it is asked."""

    def __init__(self, clock: Callable[[], int], limit: int = 5) -> None:
        self.memory = MemoryPermits(clock, "exports", limit, MINUTE)
        self.down = False
        self.calls: list[str] = []

    def _reach(self, what: str) -> MemoryPermits:
        self.calls.append(what)
        if self.down:
            raise Unavailable("the store", "it is gone")
        return self.memory

    async def acquire(self, key: str, permit_id: str, count: int) -> Decision:
        return await self._reach("acquire").acquire(key, permit_id, count)

    async def renew(self, key: str, permit_id: str, count: int) -> bool:
        return await self._reach("renew").renew(key, permit_id, count)

    async def release(self, key: str, permit_id: str, count: int) -> bool:
        return await self._reach("release").release(key, permit_id, count)

    async def look(self, key: str, count: int) -> Decision:
        return await self._reach("look").look(key, count)

    async def close(self) -> None:
        pass


def test_while_the_store_is_gone_the_policy_decides_and_says_so(clock: HandClock) -> None:
    store = Elsewhere(clock.now_us)
    store.down = True
    permits: dict[str, list[KeyPermit]] = {}
    for failure in ("open", "closed", "local"):
        with Permits(
            4, failure=failure, local_share=0.5, open_store=lambda: store, clock=clock
        ) as exports:
            permits[failure] = [exports.acquire("ann") for _ in range(3)]
            assert exports.peek("ann").degraded
            assert all(permit.decision.degraded for permit in permits[failure])
            for permit in permits[failure]:
                # What holds no place in the store has nothing to give back there.
                assert permit.renew() == permit.release() == permit.decision.allowed
            assert set(store.calls) == {"acquire", "look"}
    assert [bool(permit) for permit in permits["open"]] == [True, True, True]
    assert [bool(permit) for permit in permits["closed"]] == [False, False, False]
    assert [bool(permit) for permit in permits["local"]] == [True, True, False]
    assert reason(permits["closed"][0].decision) == "store_unavailable"


def test_a_permit_whose_store_is_gone_is_held_until_its_own_time_is_over(
    clock: HandClock,
) -> None:
    store = Elsewhere(clock.now_us)
    with Permits(1, expires_after_s=60, open_store=lambda: store, clock=clock) as exports:
        permit = exports.acquire("ann")
        store.down = True
        clock.advance(s=50)
        assert not permit.renew()
        assert permit.active
        store.down = False
        assert permit.renew()
        clock.advance(s=59)
        assert permit.active
        store.down = True
        assert not permit.release()
        assert not permit.active


def test_held_is_counted_from_before_the_store_was_asked(clock: HandClock) -> None:
    store = Elsewhere(clock.now_us)
    with Permits(1, expires_after_s=60, open_store=lambda: store, clock=clock) as exports:
        slow = store._reach

        def reach(what: str) -> MemoryPermits:
            clock.advance(s=5)
            return slow(what)

        store._reach = reach  # type: ignore[method-assign]
        permit = exports.acquire("ann")
        clock.advance(s=54.999999)
        assert holds(permit)
        clock.advance(us=1)
        assert not holds(permit)
        permit.release()
        permit = exports.acquire("ann")
        assert permit.renew()
        clock.advance(s=54.999999)
        assert holds(permit)
        clock.advance(us=1)
        assert not holds(permit)
        store._reach = slow  # type: ignore[method-assign]
        assert permit.renew()  # the store had begun later
        assert holds(permit)


def test_who_waits_for_a_store_that_others_share_asks_again_now_and_then(
    clock: HandClock,
) -> None:
    store = Elsewhere(clock.now_us, 1)
    with Permits(1, poll_s=0.5, open_store=lambda: store, clock=clock) as exports:
        exports.acquire("ann")
        store.calls.clear()
        assert not exports.acquire("ann", wait_s=2)
        assert store.calls == ["acquire"] * 5
        began = clock.now_us()
        assert exports.acquire("ann", wait_s=600)
        assert clock.now_us() - began <= 58.5 * SECOND


def test_who_waits_while_a_closed_store_is_gone_neither_spins_nor_gives_up(
    clock: HandClock,
) -> None:
    store = Elsewhere(clock.now_us)
    store.down = True
    with Permits(1, poll_s=0.5, failure="closed", open_store=lambda: store, clock=clock) as exports:
        refused = exports.acquire("ann", wait_s=2)
        assert reason(refused.decision) == "store_unavailable"
        assert 5 <= len(store.calls) <= 6


# Heartbeats.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat each 20 ms of a permit that expires after an hour: no stall can miss them all."""
    monkeypatch.setattr(face, "_BEATS", 180_000)


@pytest.mark.usefixtures("quick")
def test_a_heartbeat_renews_while_an_async_block_runs_and_not_longer() -> None:
    from sluicegate.system import now_us

    store = Elsewhere(now_us)

    async def story() -> None:
        async with Permits(1, expires_after_s=3_600, open_store=lambda: store) as exports:
            async with exports.hold("ann", renew=True) as permit:
                while store.calls.count("renew") < 3:
                    await asyncio.sleep(0.001)
                assert permit.active
            assert store.calls[-1] == "release"
            calls_before = len(store.calls)
            await asyncio.sleep(0.06)
            assert len(store.calls) == calls_before
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())


def test_no_heartbeat_is_left_when_its_block_has_ended_or_its_place_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sluicegate.system import now_us

    async def alone() -> None:
        async with asyncio.timeout(60):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)

    async def story() -> None:
        store = Elsewhere(now_us)
        async with Permits(1, expires_after_s=3_600, open_store=lambda: store) as exports:
            async with exports.hold("ann", renew=True):
                assert len(asyncio.all_tasks()) == 2
                await asyncio.sleep(0.001)  # it sleeps until the first beat
            await alone()
            assert "renew" not in store.calls
            monkeypatch.setattr(face, "_BEATS", 3_600_000)
            async with exports.hold("ann", renew=True) as permit:
                store.memory = MemoryPermits(now_us, "exports", 1, MINUTE)
                await alone()
                assert not permit.active

    asyncio.run(story())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("far", [True, False])
def test_a_heartbeat_of_a_thread_beats_in_the_background(far: bool) -> None:
    from sluicegate.system import now_us

    store = Elsewhere(now_us)
    with Permits(1, expires_after_s=3_600, open_store=(lambda: store) if far else None) as exports:
        with exports.hold("ann", renew=True) as permit:
            first = permit._until_us
            until(lambda: permit._until_us > first + 40_000, "it is renewed")
        last = permit._until_us
        assert exports.acquire("ann")
        threading.Event().wait(0.06)
        assert permit._until_us == last


@pytest.mark.usefixtures("quick")
def test_a_heartbeat_tries_again_while_the_store_is_gone_and_ends_when_the_place_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sluicegate.system import now_us

    store = Elsewhere(now_us)
    with Permits(1, expires_after_s=3_600, open_store=lambda: store) as exports:
        with exports.hold("ann", renew=True) as permit:
            store.down = True
            renewals_before = store.calls.count("renew")
            until(lambda: store.calls.count("renew") > renewals_before + 2, "it tries again")
            assert permit.active
            store.memory = MemoryPermits(now_us, "exports", 1, MINUTE)  # it has lost its state
            store.down = False
            until(lambda: not permit.active, "it is told")
        assert "release" not in store.calls


# Break-glass and the observer.


class RecordingObserver:
    def __init__(self) -> None:
        self.decisions: list[tuple[bool, str]] = []

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        assert began_us <= ended_us
        self.decisions.append((decision.allowed, key))

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        raise AssertionError

    def record_lease(self, rule: str, event: str, units: int) -> None:
        raise AssertionError


def test_an_observer_is_told_of_every_decision_once(clock: HandClock) -> None:
    observer = RecordingObserver()
    exports = Permits(1, observer=observer, clock=clock)
    exports.acquire("ann")
    exports.acquire("ann")
    exports.acquire("ann", wait_s=100)
    assert observer.decisions == [(True, "ann"), (False, "ann"), (True, "ann")]


def test_where_the_glass_is_broken_everybody_enters_and_no_place_is_counted(
    clock: HandClock,
) -> None:
    glass, now_us = Glass(), clock.now_us()
    exports = Permits(1, name="exports", glass=glass, clock=clock)
    exports.acquire("ann")
    opening = Opening("1", "exports", ALL, now_us + MINUTE, now_us, "ann", "it is wrong")
    glass.show(GlassView(now_us, [opening]), now_us)
    permit = exports.acquire("ann")
    assert permit.decision.overridden
    assert permit.release()
    glass.mend()
    assert not exports.acquire("ann")


# In a child, and in Redis.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_after_a_fork_has_names_of_its_own() -> None:
    exports = Permits(5)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, exports._stem.encode())
        os._exit(0)
    os.waitpid(child, 0)
    stem = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert stem
    assert stem != exports._stem


def test_two_programs_on_one_redis_share_the_places_threads_and_tasks_alike(
    redis_server: RedisServer,
) -> None:
    redis_server.heal()
    url = f"{redis_server.url}?timeout_ms=5000"

    async def story(one: Permits) -> None:
        async with Permits(2, store_url=url, name="exports", poll_s=0.005) as two:
            async with two.hold("ann", renew=True) as permit:
                assert permit.decision.remaining == 0
                assert not one.acquire("ann")
                assert not await two.aacquire("ann")
                waiting = asyncio.create_task(two.aacquire("ann", wait_s=30))
                await asyncio.to_thread(place.release)
                assert await waiting
            # What a task has acquired, a thread may give back.
            assert (await waiting).release()
            assert (await two.apeek("ann")).remaining == 2

    with Permits(2, store_url=url, name="exports") as one:
        place = one.acquire("ann")
        assert place
        assert place.renew()
        asyncio.run(story(one))
        assert one.peek("ann").remaining == 2
