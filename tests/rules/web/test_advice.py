from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import Limit, Limiter
from sluicegate.contracts.rule import BURSTING, Algorithm
from sluicegate.rules.web.advice import advise, never_trips
from sluicegate.rules.web.rule_set import WebRuleSet
from sluicegate.testing import HandClock

SECOND = 1_000_000


def advice(**rules: dict[str, object]) -> list[tuple[str, str]]:
    made: dict[str, object] = {
        name: rule if rule.get("exempt") else {"key": "address", "limit": "5/s", **rule}
        for name, rule in rules.items()
    }
    return [(one.rule, one.about) for one in advise(WebRuleSet.of({"rules": made}))]


def test_sound_rules_need_no_advice() -> None:
    assert (
        advice(
            login={"match": {"path": "/login"}, "limit": "5/minute; 20/hour", "failure": "closed"},
            api={"match": {"path": "/api/**"}, "limit": "10/s burst 20; 1000/hour"},
            keys={"match": {"path": "/api/x"}, "key": "header:x-api-key"},
            all={"match": {"path": "/api/y"}, "key": "everyone", "limit": "100/s"},
            health={"match": {"path": "/health"}, "exempt": True},
        )
        == []
    )


def test_a_rule_behind_an_exemption_or_a_stop_never_applies() -> None:
    assert advice(
        first={"match": {"path": "/a/**"}, "stop": True},
        behind={"match": {"path": "/a/b", "method": "GET"}},
        wider={},
        free={"match": {"path": "/free/**"}, "exempt": True},
        paid={"match": {"path": ["/free/x", "/free/{y}/z"]}},
        half={"match": {"path": ["/free/x", "/b"]}},
    ) == [("behind", "never_applies"), ("paid", "never_applies")]
    # Who may be let by does not stop all.
    for kind in (
        {"mode": "shadow"},
        {"mode": "off"},
        {"key": "user", "or_key": "skip"},
        {"match": {"method": "GET"}},
        {"match": {"user": True}},
    ):
        found = advice(first={"stop": True, **kind}, behind={"match": {"path": "/a"}})
        assert ("behind", "never_applies") not in found


def test_a_trial_that_says_stop_is_told() -> None:
    assert advice(trial={"mode": "shadow", "stop": True}) == [("trial", "stop_in_shadow")]


def test_a_bucket_for_everyone_is_told_unless_a_narrower_rule_is_beside_it() -> None:
    assert advice(all={"key": "everyone"}) == [("all", "shared_by_all")]
    assert advice(all={"key": "everyone"}, each={}) == []
    assert advice(all={"key": "everyone"}, each={"mode": "shadow"}) == [("all", "shared_by_all")]
    assert advice(some={"key": "user", "or_key": "everyone"}) == [("some", "shared_by_all")]


def test_a_key_that_callers_choose_is_told() -> None:
    assert advice(api={"key": "header:x-api-key"}) == [("api", "chosen_by_caller")]
    assert advice(api={"key": ["header:x-api-key", "address"]}) == []
    assert advice(api={"key": "header:x-api-key"}, each={"key": "address/48"}) == []


def test_a_cost_that_no_limit_can_hold_is_told() -> None:
    assert advice(a={"cost": 6}) == [("a", "costs_too_much")]
    assert advice(a={"cost": 5}) == []
    assert advice(a={"cost": {"header": "x", "default": 6}}) == [("a", "costs_too_much")]


@pytest.mark.parametrize(
    ("path", "advised"),
    [
        ("/login", True),
        ("/auth/sign-in", True),
        ("/user_login", True),
        ("/accounts/{id}/password", True),
        ("/hotpot", False),
        ("/loginfo", False),
    ],
)
def test_a_door_that_can_be_guessed_at_wants_a_closed_failure(path: str, advised: bool) -> None:
    for failure in (None, "open", "closed", "local"):
        found = advice(a={"match": {"path": path}, "failure": failure})
        assert (("a", "open_to_guessing") in found) is (advised and failure in (None, "open"))
    assert advice(a={"match": {"path": path}, "mode": "shadow"}) == []


@pytest.mark.parametrize(
    ("limits", "times"),
    [
        ("10/s; 100000/hour", 1),
        ("10/s; 1000/hour", 0),
        ("10/s burst 20; 15/s", 0),
        ("10/s; 10/s", 1),
        ("10/s burst 5; 20/s burst 5", 1),
        ("10/s burst 5; 20/s burst 4", 0),
    ],
)
def test_a_limit_that_a_narrower_one_hides_is_told(limits: str, times: int) -> None:
    assert advice(a={"limit": limits}) == [("a", "never_trips")] * times


made_limits = st.builds(
    lambda count, period, algorithm, burst: Limit(
        count,
        period_us=period * SECOND,
        algorithm=algorithm,
        burst=burst if algorithm in BURSTING else None,
    ),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from([Algorithm.GCRA, Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW]),
    st.none() | st.integers(1, 12),
)


@given(made_limits, made_limits, st.lists(st.integers(0, 3_000_000), max_size=60))
def test_what_never_trips_never_does(limit: Limit, other: Limit, gaps_us: list[int]) -> None:
    if not never_trips(limit, other):
        return
    clock = HandClock()
    limiter = Limiter(rules={"wide": limit, "narrow": other}, clock=clock)
    for gap_us in gaps_us:
        clock.advance(us=gap_us)
        if limiter.take("k", rule="narrow"):
            assert limiter.take("k", rule="wide")
