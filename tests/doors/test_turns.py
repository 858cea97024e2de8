"""Turns: who is worked on in this turn of the loop, and who in the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sluicegate.contracts.access import Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.doors.turns import STRANGER, Turns, TurnShare, class_of
from sluicegate.testing import HandClock
from tests.doors.listening import run

DEGRADED = int(Criticality.DEGRADED)


def ask(turns: Turns, times: int) -> int:
    """How many of so many portions are let in."""
    return sum(turns.enter() for _ in range(times))


def test_a_turn_has_so_many_portions_and_the_next_one_as_many_again() -> None:
    async def story() -> None:
        turns = Turns(None, 4, 1_000)
        assert ask(turns, 9) == 4
        await asyncio.sleep(0)
        assert ask(turns, 9) == 4

    run(story)


def test_a_turn_ends_by_the_clock_too() -> None:
    async def story() -> None:
        clock = HandClock(0)
        turns = Turns(clock, 100, 1_000)
        assert ask(turns, 3) == 3
        clock.advance(us=999)
        assert turns.enter()
        clock.advance(us=1)
        assert ask(turns, 3) == 0
        await asyncio.sleep(0)
        assert turns.enter()

    run(story)


def test_a_turn_whose_time_is_over_before_it_begins_has_one_portion() -> None:
    async def story() -> None:
        clock = HandClock(0)
        turns = Turns(clock, 100, 1_000)
        calls = 0

        def go_on() -> None:
            nonlocal calls
            clock.advance(us=1_000)  # as on a machine that has stood still
            calls += turns.enter()
            turns.wait(go_on, DEGRADED, served=False)

        turns.wait(go_on, DEGRADED, served=False)
        for number in range(1, 5):
            await asyncio.sleep(0)
            assert calls == number

    run(story)


def test_who_had_nothing_goes_before_who_had_something_and_class_before_both() -> None:
    async def story() -> None:
        turns = Turns(None, 2, 1_000)
        served: list[str] = []

        def work(name: str) -> Callable[[], None]:
            def go_on() -> None:
                assert turns.enter()
                served.append(name)

            return go_on

        stranger, given = class_of(None), class_of(Identity("a", ()))
        critical = class_of(Identity("a", (), criticality=Criticality.CRITICAL))
        assert (stranger, given, critical) == (STRANGER, DEGRADED, 0)
        turns.wait(work("stranger, again"), stranger, served=True)
        turns.wait(work("stranger"), stranger, served=False)
        turns.wait(work("again"), given, served=True)
        turns.wait(work("first"), given, served=False)
        turns.wait(work("critical, again"), critical, served=True)
        while turns.waiting:
            before = len(served)
            await asyncio.sleep(0)
            assert len(served) - before <= 2
        assert served == ["critical, again", "first", "again", "stranger", "stranger, again"]

    run(story)


def test_who_waits_again_is_called_in_the_next_turn_and_not_in_this_one() -> None:
    async def story() -> None:
        turns = Turns(None, 100, 1_000)
        calls = 0

        def go_on() -> None:
            nonlocal calls
            calls += 1
            turns.wait(go_on, DEGRADED, served=True)

        turns.wait(go_on, DEGRADED, served=True)
        for number in range(1, 5):
            await asyncio.sleep(0)
            assert calls == number

    run(story)


def test_what_is_read_has_a_turn_of_its_own_beside_those_who_waited() -> None:
    async def story() -> None:
        turns = Turns(None, 3, 1_000)

        def go_on() -> None:
            ask(turns, 10)
            turns.wait(go_on, DEGRADED, served=True)

        go_on()
        for _ in range(5):
            await asyncio.sleep(0)
            assert turns.enter()

    run(story)


def test_a_connection_has_its_share_of_a_turn_and_goes_on_with_a_whole_one() -> None:
    async def story() -> None:
        turns = Turns(None, 8, 1_000)
        log: list[bool] = []

        def go_on() -> None:
            log.append(share.served)
            assert [share.enter_or_wait(DEGRADED) for _ in range(3)] == [True, True, False]

        share = TurnShare(turns, 2, go_on)
        assert ask(turns, 8) == 8
        assert not share.enter_or_wait(DEGRADED)
        assert not share.enter_or_wait(DEGRADED)
        assert (share.waiting, turns.waiting) == (True, 1)
        while len(log) < 2:
            await asyncio.sleep(0)
        assert log[:2] == [False, True]

    run(story)
