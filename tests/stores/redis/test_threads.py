"""Threads that do their own input and output: together, exactly, and through every failure."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from sluicegate import Claim, Limiter
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, Ruling
from sluicegate.limits.wait_lines import finish
from sluicegate.stores.redis.node import BREAKER_DEFAULT
from sluicegate.stores.redis.settings import parse_url
from sluicegate.stores.redis.thread_client import ThreadClient
from sluicegate.stores.redis.threads import RedisThreads
from sluicegate.system import now_us
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from sluicegate.testing import SeededChance
from tests.redis.certificates import make_certificates
from tests.stores.redis.live import ECHO
from tests.stores.redis.relay import WAIT_S, Relay
from tests.stores.redis.slow_path import SlowPath
from tests.stores.redis.storing import MINUTE, Pair, limit_of

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

PATIENT = "?timeout_ms=20000"
# A window that does not end amid a test, but at midnight.
ONE = Charge("r", limit_of(Algorithm.FIXED_WINDOW, 1_000, 24 * 60 * MINUTE), "ann", 1)


@contextmanager
def threads_on(url: str, **settings: Any) -> Iterator[RedisThreads]:
    store = RedisThreads(parse_url(url), SeededChance(1), now_us, **settings)
    try:
        yield store
    finally:
        finish(store.close())


@contextmanager
def crowd(count: int) -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(count) as pool:
        yield pool.submit


def take(store: RedisThreads, *charges: Charge, **how: bool) -> Ruling:
    return finish(store.take(charges or [ONE], **how))


def failure(store: RedisThreads, charge: Charge = ONE) -> str:
    with pytest.raises(Unavailable) as caught:
        take(store, charge)
    return caught.value.detail


def waiting(store: RedisThreads) -> int:
    return store._store.stats().asks_waiting + len(store._client._outbox)


def until(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S * 1_000)):
        if true():
            return
        pause.wait(0.001)
    raise AssertionError("it did not come to that")


def random_charge(chance: random.Random) -> Charge:
    algorithm = chance.choice([*Algorithm])
    count = chance.randint(1, 6)
    limit = Limit(count, period_us=chance.choice((60_000_000, 3_600_000_000)), algorithm=algorithm)
    name = f"{algorithm.value} {count} {limit.period_us}"
    return Charge(name, limit, chance.choice("abc"), chance.randint(0, 3))


def test_each_operation_decides_what_the_kernel_decides(redis_server: RedisServer) -> None:
    async def story(store: RedisThreads) -> None:
        pair, chance = Pair(store._store), random.Random(7)
        pair.redis = store  # type: ignore[assignment]
        for _ in range(600):
            store._store.batches.now = b"%d" % pair.clock.now_us()
            charges = [random_charge(chance) for _ in range(chance.choice((1, 1, 1, 3)))]
            pick = chance.random()
            if pick < 0.7:
                await pair.take(*charges, keep=chance.random() < 0.8)
            elif pick < 0.8:
                await pair.take(*charges, count_refused=True)
            elif pick < 0.88:
                await pair.take_some(charges[0], 3, 2, 1)
            elif pick < 0.96:
                await pair.settle(*[charge._replace(cost=-charge.cost) for charge in charges])
            else:
                await pair.reset(*charges)
            pair.clock.advance(us=chance.choice((0, 1, 5_000_000)))

    with threads_on(redis_server.url + PATIENT) as store:
        asyncio.run(story(store))


def test_who_asks_alone_decides_by_the_servers_clock_what_the_batch_would(
    redis_server: RedisServer,
) -> None:
    hour = 3_600_000_000
    with threads_on(redis_server.url + PATIENT) as store:
        take(store, ONE._replace(key="warm"))
        for algorithm in Algorithm:
            for batched in (False, True):
                charge = Charge(
                    algorithm.value, Limit(3, period_us=hour, algorithm=algorithm), f"{batched}", 2
                )
                outcomes = []
                for keep in (True, False, True):
                    if batched:
                        ruling = store._client.run(store._store.take([charge], keep=keep))
                    else:
                        ruling = take(store, charge, keep=keep)
                    (decision,) = ruling.decisions
                    outcomes.append((decision.allowed, decision.remaining, decision.rule_id))
                assert outcomes == [(True, 1, algorithm.value), *[(False, 1, algorithm.value)] * 2]
        with pytest.raises(BadValue, match="cost"):
            take(store, ONE._replace(cost=-1))
        assert take(store).allowed


def test_many_threads_take_exactly_what_there_is(redis_server: RedisServer) -> None:
    limit = Limit(500, period_us=3_600_000_000, algorithm=Algorithm.FIXED_WINDOW)
    charges = [
        Charge("fixed", limit, "ann"),
        Charge("gcra", Limit(500, period_us=3_600_000_000), "ann"),
    ]

    def press(number: int) -> int:
        return sum(take(store, charges[turn % 2]).allowed for turn in range(2 * 75))

    with threads_on(redis_server.url + PATIENT) as store, crowd(16) as submit:
        assert sum(one.result() for one in [submit(press, n) for n in range(16)]) == 1_000
        stats = store._store.stats()
        assert stats.asks_waiting == stats.calls_in_flight == 0


def test_who_comes_while_a_trip_is_under_way_shares_the_next(redis_server: RedisServer) -> None:
    with Relay(redis_server.port) as relay, threads_on(relay.url + PATIENT) as store:
        take(store)
        relay.answers.clear()
        with crowd(12) as submit:
            first = submit(take, store)
            relay.wait_sent(b"EVALSHA", 2 + 1)  # the first of all was sent again with its script
            others = [submit(take, store, ONE._replace(key=f"k{n}")) for n in range(11)]
            until(lambda: waiting(store) == 11)
            sent = len(relay.sent)
            relay.answers.set()
            assert all(one.result(WAIT_S).allowed for one in [first, *others])
        assert len(relay.sent) == sent + 1
        assert store._store.stats().asks_in_call_max == 11
        assert relay.connections == 1


def test_no_thread_of_ours_is_on_the_way(redis_server: RedisServer) -> None:
    before = threading.active_count()
    with Limiter("5/minute", store_url=redis_server.url + PATIENT) as limiter:
        assert limiter.take("ann").remaining == 4
        with limiter.reserve("ann", 2) as tokens:
            tokens.settle(1)
        limiter.refund("ann")
        assert limiter.peek("ann").remaining == 3
        limiter.reset("ann")
        assert limiter.take_all(Claim("ann"), Claim("bob")).remaining == 4
        assert threading.active_count() == before


def test_a_server_that_dies_amid_a_trip_fails_all_who_were_in_it_and_is_found_again(
    redis_server: RedisServer,
) -> None:
    with Relay(redis_server.port) as relay, threads_on(relay.url + PATIENT) as store:
        take(store)
        relay.answers.clear()
        with crowd(9) as submit:
            first = submit(failure, store)
            relay.wait_sent(b"EVALSHA", 3)
            others = [submit(take, store, ONE._replace(key=f"k{n}")) for n in range(8)]
            until(lambda: waiting(store) == 8)
            relay.cut()
            relay.answers.set()
            assert "closed" in first.result(WAIT_S) or "broke" in first.result()
            # They had not been sent: they either found it again, or were spared.
            for one in others:
                error = one.exception(WAIT_S)
                assert error is None or isinstance(error, Unavailable)
        until(lambda: not store._client.unavailable_reason())
        assert take(store).allowed
        assert relay.connections >= 2


def test_a_silent_server_costs_each_trip_one_time_out_until_the_breaker_opens(
    redis_server: RedisServer,
) -> None:
    with Relay(redis_server.port) as relay, threads_on(f"{relay.url}?timeout_ms=100") as store:
        _remaining(store, ONE)
        relay.answers.clear()
        trips = 0
        while "held back" not in failure(store):
            trips += 1
        assert trips <= BREAKER_DEFAULT.failures_in_row
        sent = len(relay.sent)
        assert "held back" in failure(store)
        assert len(relay.sent) == sent
        relay.answers.set()
        assert _remaining(store, ONE) > 0


def test_threads_learn_timeout_of_slower_path_from_late_answers(
    redis_server: RedisServer,
) -> None:
    with SlowPath(redis_server.port) as path, threads_on(path.url) as store:
        (timeout,) = store._client.paths
        for _ in range(2_000):
            _remaining(store, ONE._replace(cost=0))
            if timeout.timeout_us < 30_000:
                break
        path.delay_ms = (45, 55)
        until(lambda: not failure_or_none(store) and timeout.timeout_us >= 90_000)
        before = timeout.late
        results = [failure_or_none(store) for _ in range(20)]
        assert results.count("") >= 18, results  # the machine may stall
        assert timeout.late - before <= 2


def failure_or_none(store: RedisThreads) -> str:
    try:
        take(store, ONE._replace(cost=0))
    except Unavailable as error:
        return error.detail
    return ""


def _remaining(store: RedisThreads, charge: Charge) -> int:
    while True:
        try:
            return take(store, charge).decisions[0].remaining
        except Unavailable:
            continue


def charge_each(server: RedisServer) -> None:
    """Take n of key n, in time however slow the machine is."""
    with threads_on(server.url + PATIENT) as store:
        for n in range(4):
            assert (
                take(store, ONE._replace(key=f"k{n}", cost=n)).decisions[0].remaining == 1_000 - n
            )


def test_late_answers_are_dropped_and_never_anothers(redis_server: RedisServer) -> None:
    charge_each(redis_server)
    query = "?timeout_ms=1000&silence_ms_max=60000"
    with Relay(redis_server.port) as relay, threads_on(relay.url + query) as store:
        assert _remaining(store, ONE._replace(key="k3", cost=0)) == 997
        relay.answers.clear()
        assert "no answer" in failure(store, ONE._replace(key="k3", cost=0))
        relay.answers.set()
        for n in range(4):
            assert _remaining(store, ONE._replace(key=f"k{n}", cost=0)) == 1_000 - n
        assert relay.connections == 1


def test_scripts_that_the_server_has_forgotten_are_loaded_again(redis_server: RedisServer) -> None:
    admin = redis.Redis.from_url(redis_server.url)
    with threads_on(redis_server.url + PATIENT) as store:
        for _ in range(3):
            assert take(store).allowed
            assert take(store, ONE, ONE._replace(key="bob")).allowed
            admin.script_flush()
    admin.close()


def test_a_server_that_was_restarted_while_nobody_asked_is_not_noticed(
    redis_server: RedisServer,
) -> None:
    with Relay(redis_server.port) as relay, threads_on(relay.url + PATIENT) as store:
        assert take(store).allowed
        relay.cut()
        threading.Event().wait(0.05)
        assert take(store).allowed
        assert relay.connections == 2


def test_nobody_there_is_said_at_once_and_counted_each_time(redis_server: RedisServer) -> None:
    metrics = DecisionMetrics()
    nobody = redis_server.url.replace(str(redis_server.port), "1")
    with Limiter("5/minute", store_url=nobody, observer=metrics) as limiter:
        assert all(limiter.take("ann").degraded for _ in range(50))
    counts = metrics.snapshot()
    assert counts.store_failures == counts.count("degraded_allowed") == 50
    assert counts.degraded


def test_round_trips_are_counted_with_what_they_carried(redis_server: RedisServer) -> None:
    metrics = DecisionMetrics()
    url = redis_server.url + PATIENT
    with Limiter("500/minute", store_url=url, observer=metrics) as limiter, crowd(8) as submit:
        for one in [submit(limiter.take, f"k{n}") for n in range(200)]:
            assert one.result().allowed
    counts = metrics.snapshot()
    assert counts.batches.total == 200
    assert 1 <= counts.batches.count == counts.round_trips_us.count <= 200
    assert counts.store_failures == 0


def test_a_child_after_a_fork_has_a_connection_of_its_own(redis_server: RedisServer) -> None:
    """As a server that forks its workers: the parent has asked, and goes on asking."""
    limiter = Limiter("100/hour", store_url=redis_server.url + PATIENT)
    assert limiter.take("ann").remaining == 99
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if all(limiter.take("ann").allowed for _ in range(10)) else 2
            finally:
                os._exit(status)
        children.append(child)
        assert limiter.take("ann").allowed
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert limiter.take("ann").remaining == 100 - 1 - 3 - 30 - 1
    limiter.close()


def test_a_child_forked_amid_a_trip_waits_for_nobody(redis_server: RedisServer) -> None:
    with Relay(redis_server.port) as relay:
        limiter = Limiter("100/hour", store_url=relay.url + PATIENT, failure="closed")
        assert limiter.take("ann").allowed
        relay.answers.clear()
        with crowd(2) as submit:
            first = submit(limiter.take, "ann")
            relay.wait_sent(b"EVALSHA", 3)
            second = submit(limiter.take, "ann")  # waits for the first
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    direct = Limiter("100/hour", store_url=redis_server.url + PATIENT)
                    status = 0 if direct.take("bob").allowed else 2
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            relay.answers.set()
            assert first.result(WAIT_S).allowed
            assert second.result(WAIT_S).allowed
        limiter.close()


def test_an_interrupt_ends_a_trip_and_the_next_is_none_the_worse(redis_server: RedisServer) -> None:
    with Relay(redis_server.port) as relay, threads_on(relay.url + PATIENT) as store:
        take(store)
        relay.answers.clear()
        before = len(relay.sent)

        def interrupt() -> None:
            until(lambda: len(relay.sent) > before)
            os.kill(os.getpid(), signal.SIGINT)

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            take(store)
        helper.join()
        relay.answers.set()
        assert take(store).allowed
        assert relay.connections == 2


def test_one_who_gives_up_waiting_leaves_the_others_their_turn(redis_server: RedisServer) -> None:
    with Relay(redis_server.port) as relay:
        url = f"{relay.url}?timeout_ms=400&connect_timeout_ms=400"
        with threads_on(url) as store, crowd(3) as submit:
            until(lambda: _remaining(store, ONE) > 0)
            relay.answers.clear()
            outcomes = [submit(failure, store) for _ in range(3)]
            assert all(one.result(WAIT_S) for one in outcomes)


def test_a_unix_socket_is_as_good(redis_server: RedisServer) -> None:
    with threads_on(f"redis+unix://{redis_server.socket}{PATIENT}") as store:
        assert take(store).allowed
        assert take(store).decisions[0].remaining == 998
    with threads_on("redis+unix:///nowhere.sock") as store:
        assert "cannot connect" in failure(store)


def test_tls_is_spoken_and_a_stranger_is_not_believed(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    with Relay(redis_server.port, context) as relay:
        url = relay.url.replace("redis:", "rediss:")
        with threads_on(f"{url}?timeout_ms=300&tls_ca={certificates.authority}") as store:
            charge_each(redis_server)
            assert _remaining(store, ONE._replace(key="k1", cost=0)) == 999
            relay.answers.clear()
            assert "no answer" in failure(store, ONE._replace(key="k3", cost=0))
            relay.answers.set()
            assert _remaining(store, ONE._replace(key="k2", cost=0)) == 998
        with threads_on(f"{url}{PATIENT}") as store:
            assert "TLS failed" in failure(store)
        nowhere = f"{url}{PATIENT}&tls_ca=/nowhere"
        with threads_on(nowhere) as store, pytest.raises(BadValue, match="tls"):
            take(store)


def test_a_closed_store_is_unavailable_and_wakes_who_waits(redis_server: RedisServer) -> None:
    with Relay(redis_server.port) as relay, crowd(2) as submit:
        store = RedisThreads(parse_url(relay.url + PATIENT), SeededChance(1), now_us)
        take(store)
        relay.answers.clear()
        first = submit(failure, store)
        relay.wait_sent(b"EVALSHA", 3)
        second = submit(failure, store)
        until(lambda: waiting(store) == 1)
        finish(store.close())
        assert first.result(WAIT_S) == second.result(WAIT_S) == "the client is closed"
        assert failure(store) == "the store is closed"


def test_a_server_that_refuses_the_greeting_is_named(redis_server: RedisServer) -> None:
    with threads_on(f"redis://127.0.0.1:{redis_server.port}/99") as store:
        assert "DB index is out of range" in failure(store)
        assert "calls are held back" in failure(store)


class BrokenReceiver:
    """Raises when it is handed its answer."""

    def done(self) -> bool:
        return False

    def set_result(self, reply: Any, /) -> None:
        raise ValueError("receiver")

    def set_exception(self, error: BaseException, /) -> None:
        """It no longer listens."""


def test_receiver_that_raises_ends_connection_and_fails_its_trip(
    redis_server: RedisServer,
) -> None:
    client = ThreadClient(parse_url(redis_server.url + PATIENT), SeededChance(1), now_us)
    receiver: Any = BrokenReceiver()

    async def together() -> Any:
        client.send_script(receiver, ECHO, ["key"], ["1"], -1)
        return await client.call("ECHO", "2")

    async def load() -> Any:
        return await client.run_script(ECHO, ["key"], ["0"])

    assert client.run(load()) == b"0"
    with pytest.raises(Unavailable, match="ValueError"):
        client.run(together())
    until(lambda: echoed(client) == b"3")
    finish(client.close())


def test_callback_that_raises_is_called_once(redis_server: RedisServer) -> None:
    client = ThreadClient(parse_url(redis_server.url + PATIENT), SeededChance(1), now_us)
    calls: list[int] = []

    def raising() -> None:
        calls.append(1)
        raise ValueError("callback")

    client.call_soon(raising)
    with pytest.raises(ValueError, match="callback"):
        echoed(client)
    assert echoed(client) == b"3"
    assert calls == [1]
    finish(client.close())


def echoed(client: ThreadClient) -> Any:
    """The answer to ECHO 3, or None while the breaker holds calls back."""

    async def ask() -> Any:
        return await client.call("ECHO", "3")

    try:
        return client.run(ask())
    except Unavailable:
        return None
