"""Turns: who is worked on in this turn of the loop, and who in the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from sluicegate.contracts.access import Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.doors.turns import STRANGER, Turns, TurnShare, class_of
from sluicegate.testing import HandClock
from tests.doors.listening import run

CRITICAL, DEGRADED, BULK = (
    int(Criticality.CRITICAL),
    int(Criticality.DEGRADED),
    int(Criticality.BULK),
)


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
            assert len(served) - before <= 3  # with the one of a class that had none
        assert served == ["critical, again", "first", "stranger", "again", "stranger, again"]

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


def test_what_is_read_waits_with_those_who_wait_and_is_served_by_class() -> None:
    async def story() -> None:
        turns = Turns(None, 3, 1_000)
        served: list[str] = []

        def work(name: str) -> Callable[[], None]:
            return lambda: served.append(name) if turns.enter() else None

        assert ask(turns, 9) == 3
        for number in range(4):
            turns.wait(work(f"bulk {number}"), BULK, served=False)
        await asyncio.sleep(0)
        assert served == ["bulk 0", "bulk 1", "bulk 2"]
        assert not turns.enter()  # read while somebody waits
        turns.wait(work("critical"), CRITICAL, served=False)
        await asyncio.sleep(0)
        assert served[3:] == ["critical", "bulk 3"]
        assert ask(turns, 9) == 3

    run(story)


def test_callers_of_one_class_are_served_by_turns_and_one_of_them_by_its_deadlines() -> None:
    async def story() -> None:
        turns = Turns(HandClock(0), 100, 1_000)
        served: list[str] = []
        for number, deadline_us in enumerate((0, 9_000, 0, 3_000)):
            turns.wait(
                partial(served.append, f"many {number}"),
                DEGRADED,
                served=False,
                caller="many",
                deadline_us=deadline_us,
            )
        turns.wait(lambda: served.append("few"), DEGRADED, served=False, caller="few")
        await asyncio.sleep(0)
        assert served == ["many 3", "few", "many 1", "many 0", "many 2"]

    run(story)


def test_every_class_flows_however_many_wait_who_matter_more() -> None:
    async def story() -> None:
        turns = Turns(None, 2, 1_000)
        served = [0] * (STRANGER + 1)

        def press(class_: int) -> None:
            def go_on() -> None:
                served[class_] += turns.enter()
                turns.wait(go_on, class_, served=True)

            turns.wait(go_on, class_, served=False)

        for class_ in (CRITICAL, CRITICAL, CRITICAL, DEGRADED, BULK, STRANGER):
            press(class_)
        for _ in range(30):
            await asyncio.sleep(0)
        assert served[CRITICAL] == 60
        assert min(served[DEGRADED], served[BULK], served[STRANGER]) >= 10
        assert sum(served) <= 90

    run(story)


def test_a_class_that_was_left_out_has_its_part_of_the_floor_as_those_below_it() -> None:
    async def story() -> None:
        turns = Turns(None, 1, 1_000)
        served = dict.fromkeys((CRITICAL, DEGRADED, STRANGER), 0)

        def press(class_: int) -> None:
            def go_on() -> None:
                served[class_] += turns.enter()
                turns.wait(go_on, class_, served=True)

            turns.wait(go_on, class_, served=False)

        for class_ in served:
            press(class_)
        for _ in range(20):
            await asyncio.sleep(0)
        assert served[CRITICAL] == 20  # one alone, so its line is empty when it has been served
        assert served[DEGRADED] == served[STRANGER] == 10

    run(story)


def test_a_turn_is_for_reading_and_writing_too() -> None:
    """What surrounds the serving takes three times as long: so that has a quarter of the turn."""

    async def story() -> None:
        clock = HandClock(0)
        turns = Turns(clock, 100, 1_000)
        began: list[int] = []
        served = 0

        def go_on() -> None:
            nonlocal served
            turns.enter()
            served += 1
            clock.advance(us=50)
            turns.at_end(lambda: clock.advance(us=150))
            turns.wait(go_on, DEGRADED, served=False)

        for _ in range(200):
            turns.wait(go_on, DEGRADED, served=False)
        for _ in range(50):
            await asyncio.sleep(0)
            began.append(clock.now_us())
            served = 0
            await asyncio.sleep(0)
        assert began[-1] - began[-2] <= 2 * 1_200
        assert 4 <= served <= 7

    run(story)


def test_what_is_read_while_others_wait_has_come_since_the_turn_before() -> None:
    async def story() -> None:
        clock = HandClock(1_000)
        turns = Turns(clock, 1, 1_000)
        clock.advance(us=5_000)
        assert turns.lag_us() == 0  # the loop may have slept
        for _ in range(3):
            turns.wait(turns.enter, DEGRADED, served=False)
        turns.at_end(lambda: clock.advance(us=800))
        await asyncio.sleep(0)
        assert turns.waiting
        assert turns.lag_us() == 400

    run(story)


def test_a_connection_counts_by_what_its_caller_may_claim() -> None:
    bulk, critical = Criticality.BULK, Criticality.CRITICAL
    plain = Identity("a", ())
    trusted = Identity("a", (), highest=critical)
    assert class_of(plain, critical) == DEGRADED
    assert class_of(plain, bulk) == BULK
    assert class_of(trusted, critical) == CRITICAL
    assert class_of(trusted) == DEGRADED
    assert class_of(Identity("a", (), highest=bulk), critical) == BULK


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
