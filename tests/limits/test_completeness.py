"""What is planted into a true log is found, all of it, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.completeness import (
    CONTRADICTED,
    MISSING,
    UNKNOWN,
    WRONG_COST,
    WRONGLY_ADMITTED,
    WRONGLY_REFUSED,
    CompletenessCheck,
    CompletenessFinding,
    CompletenessReport,
    DecisionRecord,
    capacity,
    units_held,
)
from sluicegate.limits.dead_letter import BEGUN, CLOSED, DeadLetter, ProcessMark
from sluicegate.stores.memory.tables import table_for
from sluicegate.testing import START_US
from tests.limits.planted import (
    LIMITS,
    PLANTS,
    SECOND,
    TEN_A_MINUTE,
    World,
    altered,
    make_world,
    plant,
)


def look(world: World, *, decisions: bool = True, **narrow: object) -> CompletenessReport:
    check = CompletenessCheck(**narrow)  # type: ignore[arg-type]
    for letter in world.letters:
        check.add_letter(letter)
    for mark in world.marks:
        check.add_mark(mark)
    if decisions:
        check.add_decisions(world.decided)
    return check.report()


def found(report: CompletenessReport) -> Counter[str]:
    return Counter(f"{one.kind} {one.id}" for one in report.findings)


@pytest.mark.parametrize("seed", range(5))
def test_a_true_log_is_clean_with_decisions(seed: int) -> None:
    report = look(make_world(seed))

    assert report.clean
    assert report.findings == []
    assert report.letters == 400
    assert report.unjudged == report.plain == 0
    assert report.open == []


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.data())
def test_exactly_the_planted_errors_are_reported(seed: int, data: st.DataObject) -> None:
    world = make_world(seed)
    places = data.draw(st.sets(st.integers(0, 399), min_size=100, max_size=100))

    planted, expected = plant(world, sorted(places), random.Random(seed))

    assert expected.total() == 100
    assert found(look(planted)) == expected


def test_a_hundred_errors_of_each_kind_in_one_log_are_told_apart() -> None:
    world = make_world(7, letters=1_500)
    planted, expected = plant(world, range(0, 1_500, 3), random.Random(7))

    report = look(planted)

    assert found(report) == expected
    assert all(report.counts[kind] > 20 for kind in PLANTS)


def letters_at(*value: tuple[int, int, bool], limit: Limit = TEN_A_MINUTE) -> list[DeadLetter]:
    """Letters of one process by (second, weight, allowed)."""
    letters, before = [], 0
    minute = START_US - START_US % (60 * SECOND)
    for number, (second, weight, allowed) in enumerate(value):
        letters.append(
            DeadLetter(
                "ann",
                "r",
                weight,
                minute + second * SECOND,
                allowed=allowed,
                limit=limit,
                process="p",
                number=number,
                before=before,
            )
        )
        before += weight
    return letters


def kinds(letters: Sequence[DeadLetter], *marks: ProcessMark) -> list[tuple[str, int]]:
    report = look(World([*letters], [], [*marks]), decisions=False)
    return [(one.kind, one.units) for one in report.findings]


def test_a_wrong_admission_is_reported_by_what_was_beyond_the_limit() -> None:
    assert kinds(letters_at((0, 8, True), (1, 5, True))) == [(WRONGLY_ADMITTED, 3)]


def test_a_wrong_admission_takes_no_room_from_the_next_letter() -> None:
    log = letters_at((0, 8, True), (1, 5, True), (2, 2, True))

    assert kinds(log) == [(WRONGLY_ADMITTED, 3)]


def test_a_wrong_refusal_takes_the_room_that_it_should_have_had() -> None:
    log = letters_at((0, 8, False), (1, 5, False))

    assert kinds(log) == [(WRONGLY_REFUSED, 8)]


def test_a_refusal_that_is_charged_leaves_less_for_the_next() -> None:
    log = letters_at((0, 8, True), (1, 5, False), (2, 2, False))
    harsh = [altered(letter, harsh=True) for letter in log]

    assert kinds(log) == [(WRONGLY_REFUSED, 2)]
    assert kinds(harsh) == []


def test_what_the_store_admitted_is_charged_and_never_judged() -> None:
    log = letters_at((5, 4, True))
    at_us = log[0].at_us
    check = CompletenessCheck()
    check.add_letter(log[0])
    check.add_decisions([
        DecisionRecord(at_us - SECOND, "ann", "r", 8, True),
        DecisionRecord(at_us - SECOND, "ann", "r", 99, False),
        DecisionRecord(at_us - SECOND, "bob", "r", 99, True),
        DecisionRecord(at_us, "ann", "r", 4, True, True, "p:0"),
    ])  # fmt: skip

    report = check.report()

    assert [(one.kind, one.units) for one in report.findings] == [(WRONGLY_ADMITTED, 2)]


def test_a_gap_tells_how_many_letters_and_how_much_weight_is_gone() -> None:
    log = letters_at((0, 1, True), (1, 2, True), (2, 3, True), (3, 1, True))

    report = look(World([log[0], log[3]], [], []), decisions=False)

    (gap,) = report.findings
    assert (gap.kind, gap.letters, gap.units, gap.id) == (MISSING, 2, 5, "p:1")
    assert report.counts[MISSING] == 2


def test_marks_tell_of_letters_lost_at_both_ends() -> None:
    log = letters_at((0, 1, True), (1, 2, True), (2, 3, True))
    begun, closed = ProcessMark(BEGUN, "p", 0, 0, 0), ProcessMark(CLOSED, "p", 3, 6, 0)

    assert kinds([log[1]]) == []
    assert kinds([log[1]], begun, closed) == [(MISSING, 1), (MISSING, 3)]
    assert kinds([], begun, closed) == [(MISSING, 6)]


def test_without_decisions_the_letter_behind_tells_of_a_changed_weight() -> None:
    log = letters_at((0, 4, True), (1, 6, True), (2, 1, False))
    log[1] = altered(log[1], cost=7)

    report = look(World(log, [], []), decisions=False)

    assert [(one.kind, one.id, one.units) for one in report.findings] == [(WRONG_COST, "p:1", -1)]


def test_decisions_without_ids_are_matched_by_what_they_say() -> None:
    log = letters_at((0, 1, True), (1, 1, True))
    decided = [DecisionRecord(one.at_us, "ann", "r", 1, True, True) for one in log]
    lost = DecisionRecord(log[0].at_us + 7, "ann", "r", 1, True, True)

    assert look(World(log, decided, [])).clean
    (finding,) = look(World(log, [*decided, lost], [])).findings
    assert (finding.kind, finding.user, finding.at_us) == (MISSING, "ann", lost.at_us)


def test_decisions_that_look_alike_are_matched_to_a_letter_each() -> None:
    log = letters_at((0, 1, True), (0, 1, True), (0, 1, True))
    decided = [DecisionRecord(log[0].at_us, "ann", "r", 1, True, True) for _ in log]

    assert look(World(log, decided, [])).clean
    counts = look(World(log[:2], decided, [])).counts
    assert (counts[MISSING], counts[UNKNOWN]) == (1, 0)


def test_a_letter_that_no_decision_knows_and_one_that_says_otherwise_are_told() -> None:
    log = letters_at((0, 1, True), (1, 1, True), (2, 1, True))
    decided = [
        DecisionRecord(log[0].at_us, "ann", "r", 1, False, True, "p:0"),
        DecisionRecord(log[2].at_us, "ann", "r", 1, True, True, "p:2"),
    ]

    report = look(World(log, decided, []))

    assert [(one.kind, one.id) for one in report.findings] == [
        (CONTRADICTED, "p:0"),
        (UNKNOWN, "p:1"),
    ]


def test_trials_plain_refusals_and_unknown_limits_are_counted_and_not_judged() -> None:
    log = letters_at((0, 99, True), (1, 99, True), (2, 1, False), (3, 5_000, True))
    log[0] = altered(log[0], shadow=True)
    log[1] = altered(log[1], limit=None)
    log[2] = altered(log[2], degraded=False)
    log[3] = altered(log[3], limit=Limit(5_000, period_us=SECOND, algorithm=Algorithm.SLIDING_LOG))

    report = look(World(log, [], []), decisions=False)

    assert report.clean
    assert (report.unjudged, report.plain) == (3, 1)


def test_each_window_of_a_user_and_rule_has_its_tally() -> None:
    log = letters_at((0, 8, True), (1, 5, True), (61, 4, False), (62, 1, True))

    report = look(World(log, [], []), decisions=False)

    (first, early), (second, late) = sorted(report.windows.items())
    assert second[2] - first[2] == 60 * SECOND
    assert (early.letters, early.admitted_units, early.wrongly_admitted_units) == (2, 13, 3)
    assert (late.refused_units, late.wrongly_refused, late.wrongly_refused_units) == (4, 1, 4)


def test_what_is_reported_can_be_narrowed_and_everything_still_counts() -> None:
    log = letters_at((0, 8, True), (1, 5, True), (2, 5, True))
    world = World(log, [], [])

    since = look(world, decisions=False, since_us=log[2].at_us)

    assert [one.id for one in since.findings] == ["p:2"]
    assert look(world, decisions=False, user="bob").clean
    assert look(world, decisions=False, rule="other").clean
    assert len(look(world, decisions=False, user="ann", rule="r").findings) == 2


def test_letters_and_findings_are_bounded() -> None:
    log = letters_at((0, 99, True), (1, 99, True), (2, 99, True))
    check = CompletenessCheck(letters_max=2)
    check.add_letter(log[0])
    check.add_letter(log[1])
    with pytest.raises(BadValue, match="letters_max"):
        check.add_letter(log[2])

    report = look(World(log, [], []), decisions=False, findings_max=1)
    assert (len(report.findings), report.left_out, report.counts[WRONGLY_ADMITTED]) == (1, 2, 3)


def test_a_process_that_did_not_say_that_it_ended_is_named() -> None:
    assert look(World(letters_at((0, 1, True)), [], []), decisions=False).open == ["p"]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_what_letters_hold_is_what_a_limit_that_saw_them_lacks(limit: Limit) -> None:
    log = letters_at((0, 3, True), (1, 2, True), (2, 9, False), limit=limit)
    table = table_for("seen", limit, 8)
    table.take("", 3, log[0].at_us)
    table.take("", 2, log[1].at_us)
    now_us = log[2].at_us

    assert (
        units_held(limit, log, now_us) == capacity(limit) - table.peek("", 0, now_us).remaining > 0
    )
    assert units_held(limit, log, now_us + 600 * SECOND) == 0


def test_a_finding_says_the_window_and_why() -> None:
    log = letters_at((60, 8, True), (75, 5, True))

    (finding,) = look(World(log, [], []), decisions=False).findings

    assert finding == CompletenessFinding(
        WRONGLY_ADMITTED,
        "ann",
        "r",
        log[1].at_us,
        log[0].at_us,
        3,
        "p:1",
        "2 of 5 were left of 10 (10 in 60 s)",
    )
