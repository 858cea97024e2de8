"""Captures made by hand, of which the right answer is known."""

from __future__ import annotations

from sluicegate.contracts.checks import Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.shadow.analysis import ADDED, CHANGED, REMOVED, Analysis, RefusalCounts, analyse
from sluicegate.shadow.pair import history_us
from sluicegate.shadow.replay import replay
from sluicegate.shadow.traffic import ADMITTED, REFUSED, UNKNOWN, CapturedTraffic
from tests.shadow.replay.captures import (
    BEGAN_US,
    captured,
    check,
    critical,
    envoy,
    limit,
    mesh,
    native,
    rules,
    vips,
)
from tests.shadow.synthetic import synthetic_traffic

ANN, BOB = critical("ann"), critical("bob")
NAMED = vips("ann", "bob")
OPEN = native(callers=NAMED)
USERS_RULE = {"key": "user", "rate_limit": {"unit": "minute", "requests_per_unit": 1}}
USERS = envoy(USERS_RULE)


def analysis_of(
    made: CapturedTraffic, current: dict[str, bytes], candidate: dict[str, bytes], **more: object
) -> Analysis:
    return analyse(replay(made, rules(current), rules(candidate)), **more)  # type: ignore[arg-type]


def figures(counts: RefusalCounts) -> tuple[int, ...]:
    """Requests, refused by the current, by the candidate, by both, newly, newly admitted."""
    return (
        counts.requests,
        counts.refused_by_current,
        counts.refused_by_candidate,
        counts.refused_already,
        counts.newly_refused,
        counts.newly_admitted,
    )


def play(count: int, **more: object) -> dict[str, bytes]:
    return native(limit("play", count, **more), callers=NAMED)  # type: ignore[arg-type]


def test_who_is_refused_by_both_is_refused_already() -> None:
    made = captured([(0.001 * at, ANN) for at in range(100)])
    analysis = analysis_of(made, play(10), play(4))
    assert figures(analysis.critical) == (100, 90, 96, 90, 6, 0)


def test_what_the_candidate_lets_in_is_newly_admitted() -> None:
    made = captured([(0.001 * at, ANN) for at in range(100)])
    analysis = analysis_of(made, play(4), play(10))
    assert figures(analysis.critical) == (100, 96, 90, 90, 0, 6)


def test_the_same_rules_change_nothing() -> None:
    made = captured([(0.5 * at, (ANN, BOB)[at % 2]) for at in range(200)])
    analysis = analysis_of(made, play(3), play(3))
    assert figures(analysis.critical) == (200, 140, 140, 140, 0, 0)
    assert not any(analysis.changes.values())


def test_a_fixed_window_begins_anew_at_its_edge_and_not_before() -> None:
    last, first = 9.999_999, 10.0
    made = captured([(0, ANN), (1, ANN), (last, ANN), (first, ANN)])
    analysis = analysis_of(made, native(callers=NAMED), play(2))
    assert figures(analysis.critical) == (4, 0, 1, 0, 1, 0)
    assert analysis.examples[0].first_us == 9_999_999


def test_a_sliding_window_forgets_the_last_window_bit_by_bit() -> None:
    # Ten in the first window. At 15 s half of that is still within the last ten seconds, so five
    # more enter and the sixth does not; at 20 s, five of them count in full no more.
    made = captured(
        [(0, ANN)] * 10 + [(10.0, ANN)] + [(15.0, ANN)] * 6 + [(20.0, ANN)] * 5 + [(20.0, ANN)]
    )
    analysis = analysis_of(made, native(callers=NAMED), play(10, algorithm="sliding_window"))
    assert analysis.result.pair.outcomes_of(0, 0) == [(0, 0, 15), (0, 1, 2)]
    assert analysis.result.pair.outcomes_of(0, 1) == [(0, 0, 5), (0, 1, 1)]


def test_a_rule_for_all_users_of_a_path_counts_them_together() -> None:
    made = captured([(0, ANN), (0, BOB), (0, ANN), (0, BOB)])
    together = play(3, resource_path="/play", per="resource")
    analysis = analysis_of(made, play(2), together)
    assert figures(analysis.critical) == (4, 0, 1, 0, 1, 0)
    (example,) = analysis.examples
    assert (example.entity, example.times, example.requests) == ("bob", 1, 2)
    assert analysis.undercounted == 4
    assert [row.counts_together for row in analysis.rows if row.rule_id == "play"] == [True]


def test_a_descriptor_that_several_share_is_seen_to_count_them_together() -> None:
    each = [mesh([("tenant", name), ("path", "/a")]) for name in ("acme", "zoo")]
    by_path = envoy(
        {
            "key": "tenant",
            "descriptors": [
                {"key": "path", "rate_limit": {"unit": "minute", "requests_per_unit": 1}}
            ],
        }
    )
    apart = analysis_of(captured([(0, each[0]), (0, each[1])]), by_path, by_path)
    assert apart.undercounted == 0
    shared = [mesh([("tenant", name)], [("path", "/a")]) for name in ("acme", "zoo")]
    by_path = envoy({"key": "path", "rate_limit": {"unit": "minute", "requests_per_unit": 1}})
    together = analysis_of(captured([(0, shared[0]), (0, shared[1])]), {}, by_path)
    assert together.undercounted == 2
    assert figures(together.classes[Criticality.DEGRADED]) == (2, 0, 1, 0, 1, 0)


def test_rules_that_only_one_book_has_are_told() -> None:
    made = captured([(0, ANN), (0, ANN), (0, BOB)])
    one = native(limit("old", 1), limit("same", 9, resource_path="/x"), callers=NAMED)
    other = native(limit("new", 1), limit("same", 9, resource_path="/x"), callers=NAMED)
    analysis = analysis_of(made, one, other)
    assert analysis.changes == {
        ADDED: [("native", "new")],
        REMOVED: [("native", "old")],
        CHANGED: [],
    }
    rows = {row.rule_id: row for row in analysis.rows}
    assert (rows["old"].requests, rows["old"].refused_by_current) == (3, 1)
    assert (rows["new"].requests, rows["new"].refused_by_candidate) == (3, 1)
    assert rows["new"].newly_refused == 0  # who is refused already is no news, whoever refuses


def test_a_rule_that_says_another_thing_is_changed() -> None:
    analysis = analysis_of(captured([(0, ANN)]), play(3), play(4))
    assert analysis.changes[CHANGED] == [("native", "play")]
    (row,) = analysis.rows
    assert row.current == "3 in 10 s (fixed_window) per user"
    assert row.candidate == "4 in 10 s (fixed_window) per user"


def test_examples_are_the_heaviest_and_bounded() -> None:
    users = [critical(f"user-{n:02}") for n in range(30)]
    requests = [(0.001 * at, user) for user in users for at in range(2 + users.index(user) // 10)]
    analysis = analysis_of(captured(requests), {}, native(limit("one", 1)))
    assert len(analysis.examples) == 20
    assert [one.entity for one in analysis.examples[:3]] == ["user-20", "user-21", "user-22"]
    assert analysis.examples[0].times == 3
    assert [len(row.examples) for row in analysis.rows] == [3]


def test_a_request_is_of_the_class_that_the_current_rules_give_it() -> None:
    made = captured([(0, ANN)] * 10)
    demoted = native(limit("play", 1), callers={"names": {"ann": "BULK"}})
    analysis = analysis_of(made, native(callers=NAMED), demoted)
    assert figures(analysis.critical) == (10, 0, 9, 0, 9, 0)
    assert analysis.critical_there.requests == 0
    assert analysis.reclassified == 10


def test_without_current_rules_the_candidates_classes_hold() -> None:
    analysis = analysis_of(captured([(0, ANN)] * 10), {}, play(4))
    assert figures(analysis.critical) == (10, 0, 6, 0, 6, 0)


def test_what_comes_before_a_limit_has_a_history_is_early() -> None:
    made = captured([(0, ANN), (9.999_999, ANN), (10, ANN), (11, ANN)])
    assert analysis_of(made, play(5), play(5)).critical.early == 2
    assert analysis_of(made, play(5, algorithm="sliding_window"), play(5)).critical.early == 4


def test_how_far_a_limit_looks_back() -> None:
    replay_rules = rules(
        native(
            limit("fixed", 5, 10, resource_path="/a"),
            limit("log", 5, 10, resource_path="/b", algorithm="sliding_log"),
            limit("slides", 5, 10, resource_path="/c", algorithm="sliding_window"),
            limit("cells", 5, 10, resource_path="/d", algorithm="sliding_window", cells=10),
            limit("bucket", 5, 10, resource_path="/e", algorithm="gcra", burst_capacity=2),
        )
    ).book.resources
    looks = {}
    for name in ("fixed", "log", "slides", "cells", "bucket"):
        rule = replay_rules.rule(name)
        assert rule is not None
        looks[name] = history_us(rule.kind.limit) / 1_000_000
    assert looks == {"fixed": 10, "log": 10, "slides": 20, "cells": 11, "bucket": 20}


def test_requests_out_of_order_are_replayed_at_the_latest_instant() -> None:
    made = captured([(9, ANN), (11, ANN), (8, ANN), (12, ANN)])
    analysis = analysis_of(made, {}, play(2))
    # At 8 s there would have been room in the first window; the clock stands at 11 s.
    assert figures(analysis.critical) == (4, 0, 1, 0, 1, 0)
    assert analysis.result.out_of_order == 1
    assert analysis.examples[0].first_us == 3_000_000


def test_what_was_answered_is_compared_with_the_current_rules() -> None:
    outcomes = [ADMITTED, ADMITTED, REFUSED, REFUSED, UNKNOWN, ADMITTED, ADMITTED]
    made = captured([(20 + 0.1 * at, ANN) for at in range(7)], outcomes=outcomes)
    agreed = analysis_of(made, play(3), play(3)).agreement
    assert agreed == (6, 2, 1, 1, 2)  # known, both admit, both refuse, only then, only here


def test_agreement_is_of_what_has_a_history_if_anything_has() -> None:
    early = [(0, ANN)] * 3
    made = captured([*early, (10, ANN)], outcomes=[REFUSED, REFUSED, REFUSED, ADMITTED])
    assert analysis_of(made, play(3), play(3)).agreement == (1, 1, 0, 0, 0)


def test_what_cannot_be_asked_counts_nowhere() -> None:
    analysis = analysis_of(captured([(0, ANN), (0, mesh())]), play(1), play(1))
    assert analysis.requests == 1
    assert analysis.result.pair.invalid == 1


def test_what_one_book_cannot_be_asked_counts_nowhere() -> None:
    wrong = mesh([("user", "ann")], override=Override(1, 99))
    analysis = analysis_of(captured([(0, wrong), (0, ANN)]), {**OPEN, **USERS}, OPEN)
    assert analysis.requests == 1
    assert analysis.result.pair.invalid == 1


def test_the_first_of_several_refusals_is_told() -> None:
    made = captured([(0, ANN), (1, ANN), (2, ANN), (3, ANN), (4, BOB)])
    (example,) = analysis_of(made, OPEN, play(1)).examples
    assert (example.times, example.first_us) == (3, 1_000_000)


def test_of_several_descriptors_the_first_that_refuses_is_told_and_trials_are_counted() -> None:
    trial = {**USERS_RULE, "key": "tried", "shadow_mode": True}
    book = envoy(USERS_RULE, {**USERS_RULE, "key": "tenant"}, trial)
    query = mesh([("tried", "a")], [("tenant", "t")], [("user", "u")])
    made = captured([(0, query)] * 3)
    both = [rules({}, semantics="envoy"), rules(book, semantics="envoy")]
    analysis = analyse(replay(made, *both))
    rows = {row.rule_id: row for row in analysis.rows}
    assert rows["shop/tenant"].newly_refused == 2
    assert rows["shop/user"].newly_refused == 0
    assert rows["shop/tried"].tried_by_candidate == 2


def test_pinned_callers_are_those_given_and_those_of_both_books() -> None:
    made = captured([(0, ANN), (0, ANN), (0, BOB), (0, mesh([("user", "eve")]))])
    one = native(callers={**NAMED, "pins": ["bob"]})
    other = native(limit("play", 1), callers={**NAMED, "pins": ["zoe"]})
    analysis = analysis_of(made, one, other, pinned=["ann", "eve"])
    assert analysis.pinned == [("ann", 2, 1), ("bob", 1, 0), ("eve", 1, 0), ("zoe", 0, 0)]


def test_a_penalty_of_the_candidate_shows_in_who_is_refused() -> None:
    made = captured([(0, ANN)] * 4)
    other = native(limit("play", 4), callers={**NAMED, "penalties": {"ann": 2}})
    assert figures(analysis_of(made, play(4), other).critical) == (4, 0, 2, 0, 2, 0)


def test_slices_tell_when_it_happened() -> None:
    bulk = check("eve", claim=Criticality.BULK)
    made = captured([(0, ANN), (0, ANN), (59.999_999, bulk)])
    slices = analysis_of(made, {}, play(1)).result.pair.slices
    assert slices[:4] == [1, 1, 0, 0]
    assert slices[59 * 16 : 60 * 16] == [0] * 12 + [1, 0, 0, 0]
    assert sum(slices) == 3


def test_slices_are_of_one_length() -> None:
    made = captured([(at + part, ANN) for at in range(60) for part in (0, 0.999_999)])
    slices = analysis_of(made, {}, {}).result.pair.slices
    assert [sum(slices[at : at + 16]) for at in range(0, 960, 16)] == [2] * 60


def test_an_empty_capture_is_replayed_to_nothing() -> None:
    analysis = analysis_of(captured([]), play(1), play(2))
    assert analysis.requests == 0
    assert analysis.examples == []


def test_the_capture_begins_where_windows_do() -> None:
    assert BEGAN_US % 100_000_000 == 0


def test_rules_and_classes_and_slices_tell_of_the_same_refusals() -> None:
    made = synthetic_traffic(4_000, seed=11, entities=30, mesh=2_000, per_s=400)
    several = [
        {
            **native(
                limit("play", count, resource_path="/api/v1/playback"),
                limit("play-long", 2 * count, 50, resource_path="/api/v1/playback"),
                limit("orders", 9 - count, resource_path="/users/*", algorithm="gcra"),
                limit("rest", 4 * count, algorithm="sliding_window"),
            ),
            "made.yaml": b'{"domain": "made", "descriptors": [{"key": "tenant", "rate_limit": '
            b'{"unit": "second", "requests_per_unit": %d}}]}' % count,
        }
        for count in (6, 3)
    ]
    analysis = analysis_of(made, *several)
    classes, rows = analysis.classes.values(), analysis.rows
    assert sum(one.requests for one in classes) == sum(analysis.result.pair.slices) == 4_000
    for name in ("refused_by_current", "refused_by_candidate", "newly_refused", "newly_admitted"):
        total = sum(getattr(one, name) for one in classes)
        assert total == sum(getattr(row, name) for row in rows)
        assert total > 0
    for one in classes:
        assert one.refused_by_current == one.refused_already + one.newly_admitted
        assert one.refused_by_candidate == one.refused_already + one.newly_refused
