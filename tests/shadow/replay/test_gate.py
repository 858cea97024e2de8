"""The gate: what it fails, what it passes, and when it says that it cannot know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import FAILED, NOT_JUDGED, PASSED, GateFinding, Judge
from sluicegate.shadow.gate import JudgeSettings, ShadowJudge
from sluicegate.shadow.traffic import CapturedTraffic
from tests.shadow.replay.captures import captured, check, critical, limit, native, vips

ANN = critical("ann")
OPEN = native(callers=vips("ann", "bob"))
CROWD = 1_000


def limited(count: int, **more: object) -> dict[str, bytes]:
    """Lets so many of ann's requests in."""
    return native(limit("play", count, **more), callers=vips("ann", "bob"))  # type: ignore[arg-type]


def crowd(count: int = CROWD) -> CapturedTraffic:
    """So many CRITICAL requests of ann in one window."""
    return captured([(0.001 * at, ANN) for at in range(count)])


def judge(
    made: CapturedTraffic | None,
    current: dict[str, bytes],
    candidate: dict[str, bytes],
    **more: Any,
) -> GateFinding:
    gate: Judge = ShadowJudge(lambda: made, JudgeSettings(**more))
    return gate.judge(current, candidate)


@pytest.mark.parametrize(
    ("let_in", "result"), [(940, FAILED), (949, FAILED), (950, PASSED), (960, PASSED)]
)
def test_more_than_five_of_a_hundred_newly_refused_fail(let_in: int, result: str) -> None:
    verdict = judge(crowd(), OPEN, limited(let_in))
    assert verdict.result == result
    newly = CROWD - let_in
    assert f"newly refuses {newly:,} of 1,000 CRITICAL requests" in verdict.sentence
    assert f"{newly / CROWD:.2%} of them (at most 5.00% may be)" in verdict.sentence


def test_what_is_refused_already_is_told_and_fails_nobody() -> None:
    verdict = judge(crowd(), limited(500), limited(460))
    assert verdict.result == PASSED
    assert "newly refuses 40 of 1,000" in verdict.sentence
    assert "500 are refused already" in verdict.sentence


def test_the_share_is_of_all_critical_requests_also_of_those_refused_already() -> None:
    assert judge(crowd(), limited(500), limited(450)).result == PASSED
    assert judge(crowd(), limited(500), limited(449)).result == FAILED


def test_fewer_samples_than_needed_are_not_judged() -> None:
    verdict = judge(crowd(999), OPEN, limited(1))
    assert verdict.result == NOT_JUDGED
    assert "999 CRITICAL requests, and 1,000 are needed" in verdict.sentence
    assert judge(crowd(999), OPEN, limited(1), samples_min=999).result == FAILED


def test_only_critical_requests_are_samples() -> None:
    others = captured([(0.001 * at, check("eve")) for at in range(5_000)])
    verdict = judge(others, OPEN, limited(1))
    assert verdict.result == NOT_JUDGED
    assert verdict.sentence.endswith("The capture has no CRITICAL requests.")


def test_a_pinned_caller_of_one_request_fails() -> None:
    made = captured([(0, ANN)] * 2_000 + [(0, check("eve")), (0, check("eve"))])
    current = native(callers=vips("ann"))
    other = native(
        limit("rest", 1), limit("ann", 5_000, priority_bucket="CRITICAL"), callers=vips("ann")
    )
    assert judge(made, current, other).result == PASSED
    verdict = judge(made, current, other, pinned=["eve"])
    assert verdict.result == FAILED
    assert "a pinned caller: 'eve' (1)" in verdict.sentence


def test_a_verdicts_sentence_shows_names_of_bounded_length_and_obeys_none() -> None:
    name = "\x1b[2J" + "x" * 1_000
    made = captured([(0, check(name)), (0.1, critical("ann"))] + [(0.2, check(name))] * 3)
    sentence = judge(made, OPEN, limited(1), pinned=[name]).sentence
    assert sentence.isprintable()
    assert len(sentence) < 500


def test_pinned_callers_need_no_samples() -> None:
    made = captured([(0, ANN), (0, ANN)])
    verdict = judge(made, OPEN, limited(1), pinned=["ann"])
    assert verdict.result == FAILED


def test_callers_that_the_current_rules_pin_cannot_be_unpinned_by_the_candidate() -> None:
    pinned = native(callers=vips("ann", pins=["ann"]))
    assert judge(crowd(), pinned, limited(999)).result == FAILED
    assert judge(crowd(), OPEN, limited(999)).result == PASSED


def test_a_pinned_caller_who_is_refused_already_is_not_newly_refused() -> None:
    assert judge(crowd(), limited(500), limited(500), pinned=["ann"]).result == PASSED


def test_another_name_for_the_traffic_hides_nothing() -> None:
    demoted = native(limit("play", 900), callers={"names": {"ann": "BULK"}})
    assert judge(crowd(), OPEN, demoted).result == FAILED


def test_traffic_that_becomes_critical_dilutes_nothing_and_is_judged_too() -> None:
    made = captured(
        [(0.001 * at, ANN) for at in range(CROWD)]
        + [(2, critical("eve")) for _ in range(9 * CROWD)]
    )
    wide = limit("eve", 20_000, priority_bucket="DEGRADED")
    promoted = native(limit("play", 10_000, resource_path="/x"), callers=vips("ann", "bob", "eve"))
    assert judge(made, OPEN, promoted).result == PASSED
    current = native(wide, callers=vips("ann", "bob"))
    harsh = native(limit("play", 940), callers=vips("ann", "eve"))
    verdict = judge(made, current, harsh)
    assert verdict.result == FAILED
    assert "by the candidate's classes" in verdict.sentence
    # Without those who are new to the class it is 60 of 1,000; with them it is far more.
    assert verdict.report["critical"]["newly_refused"] == 60  # type: ignore[index]


def test_a_beginning_without_history_hides_nothing() -> None:
    # 2,000 in the first window, of whom none is refused; then 1,000 with 60 too many.
    early = [(0.001 * at, critical(f"user-{at}")) for at in range(2_000)]
    later = [(10 + 0.001 * at, ANN) for at in range(CROWD)]
    everybody = vips("ann", *[f"user-{at}" for at in range(2_000)])
    current = native(callers=everybody)
    verdict = judge(captured(early + later), current, native(limit("play", 940), callers=everybody))
    assert verdict.report["critical"]["newly_refused_share"] == 0.02  # type: ignore[index]
    assert verdict.result == FAILED
    assert "60 of 1,000 CRITICAL requests after the limits had a history" in verdict.sentence
    few = captured(early + later[:999])
    assert judge(few, current, native(limit("play", 940), callers=everybody)).result == PASSED


def test_trials_are_judged_only_if_it_is_asked_for() -> None:
    trial = limited(500, mode="shadow")
    assert judge(crowd(), OPEN, trial).result == PASSED
    assert judge(crowd(), OPEN, trial, trials_enforced=True).result == FAILED


@pytest.mark.parametrize("made", [None, captured([])])
def test_without_a_capture_nothing_is_judged(made: CapturedTraffic | None) -> None:
    verdict = judge(made, OPEN, limited(1))
    assert verdict == (
        NOT_JUDGED,
        "Not judged: there is no captured traffic to try the rules on.",
        None,
        {},
    )


def test_a_capture_that_cannot_be_read_is_no_capture() -> None:
    def broken() -> CapturedTraffic:
        raise Unavailable("the capture", "its disk is full")

    verdict = ShadowJudge(broken).judge(OPEN, limited(1))
    assert verdict.result == NOT_JUDGED
    assert "its disk is full" in verdict.sentence


def test_rules_that_cannot_be_read_fail_and_name_the_file_as_the_commit_does() -> None:
    verdict = judge(crowd(), OPEN, {"own.yaml": b"version: 1\nrules: 5\n"})
    assert verdict.result == FAILED
    assert "cannot be read: own.yaml" in verdict.sentence
    assert "/tmp" not in verdict.sentence


def test_current_rules_that_cannot_be_read_are_not_the_candidates_fault() -> None:
    assert judge(crowd(), {"own.yaml": b"rules: 5"}, OPEN).result == NOT_JUDGED


def test_a_first_rulebook_is_judged_by_its_own_classes() -> None:
    assert judge(crowd(), {}, limited(960)).result == PASSED
    assert judge(crowd(), {}, limited(940)).result == FAILED


def test_a_verdict_has_its_confidence_and_what_json_can_hold() -> None:
    verdict = judge(crowd(), OPEN, limited(960))
    assert verdict.confidence is not None
    assert 0 < verdict.confidence < 1
    assert json.loads(json.dumps(verdict.report)) == verdict.report


def test_what_is_to_be_known_of_the_capture_stands_in_the_report() -> None:
    gate = ShadowJudge(crowd, notes=["Two segments were damaged."])
    report = gate.judge(OPEN, limited(960)).report
    assert report["notes"][-1] == "Two segments were damaged."  # type: ignore[index]


@pytest.mark.parametrize(
    "wrong",
    [{"refused_max": -0.1}, {"refused_max": 1.1}, {"samples_min": 0}, {"workers": 0}],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match=next(iter(wrong))):
        JudgeSettings(**wrong)
