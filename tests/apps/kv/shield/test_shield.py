"""Shield: what is hot is served from here, and never past its time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.shield.keys import KEY_CHARS_MAX, key_of, place_of, without_turn
from sluicegate.apps.kv.shield.settings import ShieldSettings
from sluicegate.apps.kv.shield.shield import COLD, FRESH, MISS, NEGATIVE, REFRESH, STALE, Shield
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.key_values import Row
from sluicegate.contracts.reasons import QUEUE_FULL, QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.cache.coalesce import Flight
from sluicegate.policies.cache.hot_key import OfferedLoads
from sluicegate.testing import HandClock, SeededChance
from tests.policies.virtual import VirtualLoop, pause_us, run

MS = 1_000
SECOND = 1_000_000
ROW = Row(b"s", b"value")


class Half:
    """Draws of 0.5: what was put with 20 ms of fetching is refreshed from 14 ms before its end."""

    def draw(self) -> float:
        return 0.5


class Bench:
    """A shield over an engine that answers after 20 ms what it is told to."""

    def __init__(self, loop: VirtualLoop, **some: Any) -> None:
        plain: dict[str, Any] = {"saved_min": 2.0, "jitter": 0.0}  # hot at the third read
        self.loop = loop
        self.shield: Shield[Row] = Shield(ShieldSettings(**(plain | some)), Half())
        self.key = self.shield.key("t", b"p", b"s")
        self.row: Row | None = ROW
        self.error: Exception | None = None
        self.flown: list[Request] = []

    async def fetch(self, flight: Flight[Row | None]) -> Row | None:
        self.flown.append(flight.request)
        row, error = self.row, self.error
        await pause_us(20 * MS)
        if error is not None:
            raise error
        return row

    def look(
        self, key: str = "", *, shard: str = "", strong: bool = False
    ) -> tuple[int, Row | None]:
        return self.shield.look(key or self.key, self.loop.now_us(), shard, strong=strong)

    def read(self, stale: Row | None = None, request: Request | None = None) -> Awaitable[Any]:
        read_request = request or Request(self.key)
        return self.shield.read(self.key, stale, read_request, self.loop, self.fetch)

    async def warm(self) -> None:
        """Hot, and kept."""
        while self.look()[0] == COLD:
            pass
        await self.read()


def test_a_key_is_cold_then_fetched_once_and_served() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        assert [bench.look()[0] for _ in range(3)] == [COLD, COLD, MISS]
        assert await bench.read() == ROW
        assert bench.look() == (FRESH, ROW)
        stats = bench.shield.stats()
        assert (stats.hot.cold, stats.hot.missed, stats.hot.served) == (2, 1, 1)

    run(story)


def test_a_strong_read_passes_by_and_is_counted() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        await bench.warm()
        assert bench.look(strong=True) == (COLD, None)
        assert bench.shield.stats().hot.cold == 3

    run(story)


def test_what_is_not_there_is_kept_for_a_shorter_time() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        bench.row = None
        await bench.warm()
        assert bench.look() == (NEGATIVE, None)
        await pause_us(300 * MS)
        assert bench.look() == (MISS, None)

    run(story)


def test_a_row_is_never_served_past_its_own_expiry() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        bench.row = ROW._replace(expires_us=loop.now_us() + 100 * MS)
        await bench.warm()
        await pause_us(79 * MS)
        assert bench.look()[0] == FRESH
        await pause_us(1 * MS)
        assert bench.look() == (MISS, None)
        assert bench.shield.stats().expired == 1

    run(story)


def test_a_row_that_expires_while_it_is_fetched_is_neither_told_nor_kept() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        bench.row = ROW._replace(expires_us=loop.now_us() + 20 * MS)
        while bench.look()[0] == COLD:
            pass
        assert await bench.read() is None
        assert bench.shield.stats().hot.cached == 0

    run(story)


def test_an_old_row_is_not_served_instead_of_an_error_past_its_own_expiry() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        bench.error = Unavailable("the engine", "it fell over")
        old = ROW._replace(expires_us=loop.now_us() + 10 * MS)
        with pytest.raises(Unavailable):
            await bench.read(stale=old)
        assert await bench.read(stale=old._replace(expires_us=loop.now_us() + SECOND))
        await bench.shield.close()

    run(story)


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the engine", "it fell over"),
        Refused(Decision(False, 0, 5, 5, QUEUE_FULL, "queue")),
    ],
)
def test_an_old_answer_stands_in_for_an_error_and_for_a_refusal(error: Exception) -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop, saved_min=0.0)
        await bench.warm()
        await pause_us(3_500 * MS)
        state, row = bench.look()
        assert (state, row) == (STALE, ROW)
        bench.error = error
        request = Request(bench.key)
        assert await bench.read(row, request) == ROW
        assert request.measured is not None
        assert request.measured.from_cache
        with pytest.raises(type(error)):
            await bench.read()
        await bench.shield.close()

    run(story)


def test_a_bug_is_no_reason_to_serve_what_is_old() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        bench.error = KeyError("a bug")
        with pytest.raises(KeyError):
            await bench.read(ROW)
        await pause_us(1)

    loop_errors: list[object] = []

    async def listened(loop: VirtualLoop) -> None:
        loop.set_exception_handler(lambda _, context: loop_errors.append(context))
        await story(loop)

    run(listened)
    assert len(loop_errors) == 1  # it was fetched ahead too, with nobody else to tell


def test_an_answer_near_its_end_is_served_and_one_reader_fetches_ahead() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop, saved_min=0.0)
        await bench.warm()
        await pause_us(3_490 * MS)
        bench.row = Row(b"s", b"new")
        assert bench.look() == (REFRESH, ROW)
        request = Request(bench.key, caller="ann", criticality=Criticality.BULK, deadline_us=1)
        assert bench.shield.fetch_ahead(bench.key, request, loop, bench.fetch)
        assert not bench.shield.fetch_ahead(
            bench.key, request, loop, bench.fetch
        )  # it is under way
        assert bench.look() == (REFRESH, ROW)
        await pause_us(21 * MS)
        assert bench.look() == (FRESH, Row(b"s", b"new"))
        flown = bench.flown[-1]
        assert (flown.caller, flown.criticality) == ("ann", Criticality.BULK)
        assert flown.deadline_us == loop.now_us() - 21 * MS + SECOND  # its own, not the reader's
        assert len(bench.flown) == 2

    run(story)


def test_no_more_is_fetched_ahead_than_there_is_room_for() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop, ahead_max=2)
        done = [
            bench.shield.fetch_ahead(key, Request(key), loop, bench.fetch)
            for key in ("a", "b", "c")
        ]
        assert done == [True, True, False]
        assert (bench.shield.stats().ahead, bench.shield.stats().ahead_skipped) == (2, 1)
        await bench.shield.close()
        assert bench.shield.stats().ahead == 0

    run(story)


def test_a_fetch_ahead_that_fails_is_counted_and_troubles_nobody() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        bench.error = Unavailable("the engine", "it fell over")
        bench.shield.fetch_ahead(bench.key, Request(bench.key), loop, bench.fetch)
        await pause_us(21 * MS)
        assert (bench.shield.stats().ahead, bench.shield.stats().ahead_failed) == (0, 1)

    run(story)


def test_the_leader_pays_and_those_who_joined_are_marked() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        first, second = Request(bench.key), Request(bench.key)
        await asyncio.gather(bench.read(None, first), bench.read(None, second))
        assert first.measured is None
        assert second.measured is not None
        assert second.measured == Measured(0, 0, 6, True)

    run(story)


def test_a_critical_reader_raises_the_fetch_that_he_joins() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        first = asyncio.ensure_future(
            bench.read(None, Request(bench.key, criticality=Criticality.BULK))
        )
        await pause_us(MS)
        classes = [bench.flown[0].criticality]
        await bench.read(None, Request(bench.key, criticality=Criticality.CRITICAL))
        classes.append(bench.flown[0].criticality)
        assert classes == [Criticality.BULK, Criticality.CRITICAL]
        await first

    run(story)


def test_while_a_key_is_written_nothing_is_kept_of_it() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        await bench.warm()
        bench.shield.begin_write(bench.key)
        bench.shield.begin_write(bench.key)
        assert bench.look() == (MISS, None)
        bench.shield.end_write(bench.key)
        await bench.read()
        assert bench.look() == (MISS, None)  # the other one is under way
        assert (bench.shield.stats().barred, bench.shield.stats().writing) == (1, 1)
        bench.shield.end_write(bench.key)
        await bench.read()
        assert bench.look() == (FRESH, ROW)
        assert bench.shield.stats().writing == 0

    run(story)


def test_a_table_that_turned_has_nothing_kept_and_others_have() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        await bench.warm()
        bench.shield.replace_table("other")
        assert bench.look(bench.shield.key("t", b"p", b"s")) == (FRESH, ROW)
        bench.shield.replace_table("t")
        key = bench.shield.key("t", b"p", b"s")
        assert key != bench.key
        assert [bench.look(key)[0] for _ in range(3)] == [COLD, COLD, MISS]

    run(story)


def test_a_write_that_began_before_the_table_turned_voids_what_was_read_since() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        bench.shield.begin_write(bench.key)
        bench.shield.replace_table("t")
        now = bench.shield.key("t", b"p", b"s")
        while bench.look(now)[0] == COLD:
            pass
        fill = bench.shield.begin(now, loop.now_us())
        assert not bench.shield.land(fill, ROW, loop.now_us())  # it is being written
        before = bench.shield.begin(now, loop.now_us())
        bench.shield.end_write(bench.key)
        assert not bench.shield.land(before, ROW, loop.now_us())
        assert bench.shield.stats().writing == 0

    run(story)


def test_the_board_tells_what_became_of_the_reads_of_a_key() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        await bench.warm()
        for _ in range(5):
            bench.look()
        ((key, guaranteed, served, forwarded, size),) = bench.shield.board(5)
        assert (key, guaranteed, served, forwarded, size) == (bench.key, 8, 5, 1, 6)
        assert bench.shield.remembered == 8

    run(story)


def test_reads_remembered_are_halved_with_each_window() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop)
        for _ in range(8):
            bench.look()
        await pause_us(3 * SECOND)
        bench.look()
        assert bench.shield.remembered == 5
        assert [place.guaranteed for place in bench.shield.board(1)] == [5]
        await pause_us(300 * SECOND)
        bench.look()
        assert bench.shield.remembered == 1

    run(story)


def test_key_is_shielded_only_while_its_shard_is_loaded() -> None:
    async def story(loop: VirtualLoop) -> None:
        loads = {"s": 0.0, "idle": 0.0}
        bench = Bench(loop)
        bench.shield = Shield(ShieldSettings(), Half(), loads=OfferedLoads(loads.__getitem__))
        states = [bench.look(shard="s")[0] for _ in range(500)]
        assert set(states) == {COLD}
        loads["s"] = 1.0
        states = [bench.look(shard="s")[0] for _ in range(100)]
        assert states[0] == COLD
        assert states[-1] == MISS
        await bench.read(None, Request(bench.key, shard="s"))
        assert bench.look(shard="s") == (FRESH, ROW)
        assert bench.look("another", shard="s") == (COLD, None)
        assert bench.look(shard="idle") == (COLD, None), "another shard has its own load"

    run(story)


def test_cold_read_takes_ten_calls_in_three_files() -> None:
    shield: Shield[Row] = Shield(
        ShieldSettings(), SeededChance(1), loads=OfferedLoads({"s": 0.0}.__getitem__)
    )
    traced: list[list[tuple[str, str]]] = []

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            traced[-1].append((frame.f_code.co_filename, frame.f_code.co_name))

    for number in range(4_000):
        traced.append([])
        sys.setprofile(record)
        try:
            key = shield.key("t", b"%d" % number, b"")
            state, _ = shield.look(key, number, "s")
        finally:
            sys.setprofile(None)
        assert state == COLD
    usual = sorted(traced[3_000:], key=len)[500]
    assert len(usual) <= 10
    assert len({file for file, _ in usual}) <= 3


def test_the_longest_key_there_is_can_be_hot() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop, saved_min=0.0)
        assert bench.look(key_of("t" * 64, b"p" * 240, b"s" * 240, 7))[0] == MISS

    run(story)


def test_the_tallies_are_bounded() -> None:
    async def story(loop: VirtualLoop) -> None:
        bench = Bench(loop, tallies_max=2, saved_min=0.0)
        for name in ("a", "b", "c"):
            bench.look(name)
            bench.look(name)
            fill = bench.shield.begin(name, loop.now_us())
            bench.shield.land(fill, ROW, loop.now_us())
        sizes = {place.key: place.size_bytes for place in bench.shield.board(5)}
        assert sizes == {"a": 0, "b": 6, "c": 6}

    run(story)


PARTITIONS = st.binary(min_size=1, max_size=240)
SORTS = st.binary(max_size=240)


@given(PARTITIONS, SORTS, st.integers(0, 1 << 62))
def test_a_key_tells_its_place_and_fits(partition: bytes, sort: bytes, turn: int) -> None:
    key = key_of("a.table-_1", partition, sort, turn)
    assert place_of(key) == ("a.table-_1", partition, sort)
    assert without_turn(key) == key_of("a.table-_1", partition, sort)
    assert len(key_of("t" * 64, partition, sort, turn)) <= KEY_CHARS_MAX


@given(PARTITIONS, SORTS, PARTITIONS, SORTS)
def test_two_places_never_share_a_key(p1: bytes, s1: bytes, p2: bytes, s2: bytes) -> None:
    assert (key_of("t", p1, s1) == key_of("t", p2, s2)) == ((p1, s1) == (p2, s2))


def test_where_a_partition_ends_is_told_by_the_key() -> None:
    assert key_of("t", b"ab", b"c") != key_of("t", b"a", b"bc")


@pytest.mark.parametrize(
    "key", ["", "t", "t:x:y", "t:9:ab", "t:1:\u0100", "t:1000:a", "t:\u0661:a"]
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(BadValue):
        place_of(key)


@pytest.mark.parametrize(
    "some",
    [{"saved_min": -1}, {"ahead_us": 0}, {"ttl_us": 0}, {"waiters_max": 0}, {"tallies_max": 0}],
)
def test_settings_are_checked_where_they_are_made(some: dict[str, int]) -> None:
    with pytest.raises(BadValue, match=next(iter(some))):
        ShieldSettings(**some)


def test_the_published_staleness_is_what_is_served_at_most() -> None:
    shield: Shield[Row] = Shield(ShieldSettings(), SeededChance(1))
    assert shield.staleness_us_max == 33_500_000


def test_who_joined_a_fetch_is_not_refused_for_its_leaders_quota() -> None:
    """One tenant over its quota must not have another refused who asks for the same key."""

    async def story() -> None:
        clock = HandClock()
        shield: Shield[Row] = Shield(ShieldSettings(saved_min=0.0), SeededChance(1))
        key = shield.key("t", b"p", b"")
        for _ in range(50):
            shield.look(key, clock.now_us())
        spent = Decision(False, 0, 1, 1, QUOTA_SPENT, "request_units")
        waiting = asyncio.Event()

        async def over(flight: Flight[Row | None]) -> Row | None:
            await waiting.wait()
            raise Refused(spent)

        async def well(flight: Flight[Row | None]) -> Row | None:
            assert flight.request.caller == "victim"
            return Row(b"", b"v")

        leader = asyncio.ensure_future(
            shield.read(key, None, Request(key, caller="attacker"), clock, over)
        )
        await asyncio.sleep(0)
        victims = [
            asyncio.ensure_future(
                shield.read(key, None, Request(key, caller="victim"), clock, well)
            )
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        waiting.set()
        assert [await one for one in victims] == [Row(b"", b"v")] * 3
        with pytest.raises(Refused):
            await leader
        assert shield.stats().led_astray == 3
        await shield.close()

    asyncio.run(story())


def test_who_joined_a_fetch_of_the_same_caller_is_refused_with_it_and_does_not_ask_anew() -> None:
    """A caller over its quota asks for one key a thousand times at once: one is refused for all."""

    async def story() -> None:
        clock = HandClock()
        refused: list[str] = []
        shield: Shield[Row] = Shield(
            ShieldSettings(saved_min=0.0),
            SeededChance(1),
            refused=lambda request, decision, now_us: refused.append(request.caller),
        )
        key = shield.key("t", b"p", b"")
        for _ in range(50):
            shield.look(key, clock.now_us())
        spent = Decision(False, 0, 1, 1, QUOTA_SPENT, "request_units")
        waiting = asyncio.Event()
        fetches = 0

        async def over(flight: Flight[Row | None]) -> Row | None:
            nonlocal fetches
            fetches += 1
            await waiting.wait()
            raise Refused(spent)

        readers = [
            asyncio.ensure_future(
                shield.read(key, None, Request(key, caller="attacker"), clock, over)
            )
            for _ in range(100)
        ]
        await asyncio.sleep(0)
        waiting.set()
        ends = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(one) for one in ends] == [Refused] * 100
        assert fetches == 1
        assert refused == ["attacker"] * 99  # the first by whoever refused it
        await shield.close()

    asyncio.run(story())
