from __future__ import annotations

import ast
import copy
import gc
import pickle
from pathlib import Path

import pytest

import sluicegate.contracts.request as request_module
from sluicegate import BadValue, Criticality, Decision, Limit, Refused, Unavailable
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, parse_criticality
from sluicegate.contracts.reasons import (
    COST_ABOVE_LIMIT,
    DEADLINE,
    OUTCOME_UNKNOWN,
    RATE_LIMITED,
    REASONS,
    RetryAdvice,
    find_reason,
)
from sluicegate.contracts.request import Measured, Request, make_request
from sluicegate.contracts.rule import Algorithm
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.policies.quota.work_shape import WorkShape

DECISION_SOURCE = Path(__file__).parents[2] / "src/sluicegate/contracts/decision.py"
REFUSAL = Decision(False, 0, 1_500_000, 60_000_000, RATE_LIMITED, "10/minute")


# Reasons.


@pytest.mark.parametrize("name", REASONS)
def test_every_reason_has_words_and_codes_for_every_door(name: str) -> None:
    reason = REASONS[name]
    assert reason.name == name == name.lower()
    assert reason.sentence.endswith(".")
    assert reason.http_status in {429, 500, 503, 504}
    assert reason.resp_error.isupper()
    safe = reason.retry in (RetryAdvice.LATER, RetryAdvice.ELSEWHERE)
    assert reason.retryable == safe
    assert find_reason(name) is reason


def test_too_much_from_the_caller_and_too_little_from_us_have_different_codes() -> None:
    codes = {reason.http_status: reason.grpc_code.name for reason in REASONS.values()}
    assert codes == {
        429: "RESOURCE_EXHAUSTED",
        500: "UNKNOWN",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }


def test_unknown_outcome_shares_no_code_with_another_reason() -> None:
    for reason in REASONS.values():
        if reason is not OUTCOME_UNKNOWN:
            assert reason.http_status != OUTCOME_UNKNOWN.http_status
            assert reason.grpc_code is not OUTCOME_UNKNOWN.grpc_code
            assert reason.resp_error != OUTCOME_UNKNOWN.resp_error
    assert not OUTCOME_UNKNOWN.retryable


def test_a_reason_is_the_same_row_after_a_journey() -> None:
    assert pickle.loads(pickle.dumps(DEADLINE)) is DEADLINE
    assert copy.deepcopy(DEADLINE) is DEADLINE


# Decisions.


def test_a_decision_is_true_when_it_allows() -> None:
    assert Decision(True, 9, 0, 6_000_000, None, "10/minute")
    assert not REFUSAL


def test_a_decision_tells_its_times_in_seconds_too() -> None:
    assert (REFUSAL.retry_after_s, REFUSAL.reset_after_s) == (1.5, 60.0)


def test_never_is_the_same_number_in_seconds_as_in_microseconds() -> None:
    never = Decision(False, 5, NEVER, 0, COST_ABOVE_LIMIT, "10/minute")
    assert (never.retry_after_us, never.retry_after_s) == (-1, None)
    assert never.explain().endswith("Asking again will not help.")


def test_decisions_compare_by_value_and_travel() -> None:
    twin = pickle.loads(pickle.dumps(REFUSAL))
    assert twin == REFUSAL
    assert hash(twin) == hash(REFUSAL)
    assert twin != Decision(True, 0, 0, 0, None, "10/minute")
    assert REFUSAL != "refused"


def test_each_mark_is_its_own_and_travels() -> None:
    plain = Decision(True, 9, 0, 0, None, "api")
    assert (plain.degraded, plain.shadow, plain.overridden) == (False, False, False)
    marked = [
        plain.with_marks(degraded=True),
        plain.with_marks(shadow=True),
        plain.with_marks(overridden=True),
    ]
    for number, one in enumerate(marked):
        assert [one.degraded, one.shadow, one.overridden] == [n == number for n in range(3)]
        assert one != plain
        assert pickle.loads(pickle.dumps(one)) == one
        assert one.with_marks() is one
    assert len({plain, *marked}) == 4


def test_a_decision_under_an_override_says_so() -> None:
    decision = Decision(True, 0, 0, 0, None, "login").with_marks(overridden=True)
    assert decision.explain() == (
        "Allowed, because enforcement of rule 'login' is stopped for now (break-glass)."
    )


def test_a_decision_shows_what_was_decided() -> None:
    assert repr(REFUSAL) == "<Decision rate_limited by '10/minute', retry after 1500000 us>"
    allowed = Decision(True, 9, 0, 6_000_000, None, "10/minute")
    assert repr(allowed) == "<Decision allowed by '10/minute', 9 remaining>"


# Errors.


def test_a_bad_value_names_the_field_the_value_and_the_remedy() -> None:
    error = BadValue("limits[2].rate", "x", "write it as 1/s")
    assert str(error) == "limits[2].rate: 'x' cannot be used; write it as 1/s"
    assert isinstance(error, ValueError)


def test_errors_travel() -> None:
    for error in (BadValue("a", 1, "b"), Unavailable("redis", "timed out"), Refused(REFUSAL)):
        twin = pickle.loads(pickle.dumps(error))
        assert (type(twin), str(twin)) == (type(error), str(error))


def test_a_refusal_as_an_error_carries_its_decision() -> None:
    assert Refused(REFUSAL).decision is REFUSAL
    assert str(Refused(REFUSAL)) == RATE_LIMITED.sentence


# Criticality, limits and requests.


@pytest.mark.parametrize("text", ["BEST_EFFORT", "best-effort", " Best_Effort "])
def test_a_criticality_is_read_in_any_spelling(text: str) -> None:
    assert parse_criticality(text) is Criticality.BEST_EFFORT


def test_an_unknown_criticality_lists_the_known() -> None:
    with pytest.raises(BadValue, match="CRITICAL, DEGRADED, BEST_EFFORT, BULK"):
        parse_criticality("urgent")


def test_silence_never_claims_to_be_critical() -> None:
    assert DEFAULT_CRITICALITY is not Criticality.CRITICAL
    assert sorted(Criticality) == list(Criticality)


def test_limits_compare_by_value() -> None:
    assert Limit(1, period_us=1) == Limit(1, period_us=1, burst=1)
    assert hash(Limit(1, period_us=1)) == hash(Limit(1, period_us=1, burst=1))
    assert Limit(1, period_us=1) != Limit(1, period_us=1, algorithm=Algorithm.FIXED_WINDOW)
    assert "burst=7" in repr(Limit(1, period_us=1, burst=7))


def test_a_sliding_window_shows_its_cells_and_compares_by_them() -> None:
    sliding = Algorithm.SLIDING_WINDOW
    assert Limit(1, period_us=60).cells == 1
    assert Limit(1, period_us=60, algorithm=sliding).cells == 10
    assert Limit(1, period_us=60, cells=8, algorithm=sliding).cells == 6  # the most that divide 60
    assert Limit(1, period_us=60, cells=8, algorithm=sliding) == Limit(
        1, period_us=60, cells=6, algorithm=sliding
    )
    assert Limit(1, period_us=60, cells=1, algorithm=sliding) != Limit(
        1, period_us=60, algorithm=sliding
    )
    assert len({Limit(1, period_us=60, cells=n, algorithm=sliding) for n in range(1, 11)}) == 7
    assert "cells=6" in repr(Limit(1, period_us=60, cells=6, algorithm=sliding))
    assert "cells" not in repr(Limit(1, period_us=60))


@pytest.mark.parametrize("cells", [0, -1, 1_001])
def test_cells_out_of_bounds_are_refused_by_name(cells: int) -> None:
    with pytest.raises(BadValue, match=r"limit\.cells"):
        Limit(1, period_us=60, cells=cells, algorithm=Algorithm.SLIDING_WINDOW)


@pytest.mark.parametrize(
    "algorithm", [kind for kind in Algorithm if kind is not Algorithm.SLIDING_WINDOW]
)
def test_only_a_sliding_window_has_cells(algorithm: Algorithm) -> None:
    with pytest.raises(BadValue, match=rf"limit\.cells.*{algorithm.value} has none"):
        Limit(1, period_us=60, cells=1, algorithm=algorithm)


@pytest.mark.parametrize(
    ("count", "period_us", "burst", "field"),
    [(0, 1, 1, "count"), (1, 0, 1, "period_us"), (1, 1, 0, "burst"), (1 << 54, 1, 1, "count")],
)
def test_a_limit_with_a_zero_is_refused_by_name(
    count: int, period_us: int, burst: int, field: str
) -> None:
    with pytest.raises(BadValue, match=rf"limit\.{field}"):
        Limit(count, period_us=period_us, burst=burst)


def test_a_request_knows_how_much_time_it_has_left() -> None:
    assert Request("k").remaining_us(5) is None
    assert Request("k", deadline_us=10).remaining_us(4) == 6
    assert Request("k", deadline_us=10).remaining_us(40) == 0


def test_a_request_made_anew_claims_the_same_and_knows_nothing_of_the_first() -> None:
    first = Request(
        "key",
        caller="ann",
        cost=3,
        criticality=Criticality.BULK,
        arrived_us=7,
        deadline_us=9,
        operation="scan",
        shard="s1",
        attributes={"a": "b"},
    )
    first.cost_ru = 50
    first.measured = Measured(service_us=1)
    again = first.copy()
    names = {name for name in vars(Request) if not name.startswith("_")}
    claims = {name for name in names if not callable(getattr(Request, name))}
    assert claims > {"key", "attributes"}
    for name in claims - {"cost_ru", "measured"}:
        assert getattr(again, name) == getattr(first, name), name
    assert (again.cost_ru, again.measured) == (3, None)
    assert first.copy({"c": "d"}).attributes == {"c": "d"}


def test_nobody_changes_a_decision() -> None:
    # mypy refuses an assignment to a final attribute; here is that every attribute is one.
    tree = ast.parse(DECISION_SOURCE.read_text())
    (kind,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    targets = [
        node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        for node in ast.walk(kind)
        if isinstance(node, ast.AnnAssign | ast.Assign)
    ]
    finals = {
        node.target.attr
        for node in ast.walk(kind)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and ast.unparse(node.annotation) == "Final"
    }
    (slots,) = [
        ast.literal_eval(node.value)
        for node in kind.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
    ]
    assert finals == set(slots)
    changed = [node.attr for node in targets if isinstance(node, ast.Attribute)]
    assert sorted(changed) == sorted(finals), "each is assigned once, when it is made"


def test_more_units_or_another_rule_make_another_decision() -> None:
    one = Decision(True, 9, 0, 5, None, "api", degraded=True)
    assert one.with_more(3) == Decision(True, 12, 0, 5, None, "api", degraded=True)
    assert one.with_rule("login") == Decision(True, 9, 0, 5, None, "login", degraded=True)
    assert (one.remaining, one.rule_id) == (9, "api")


@pytest.mark.skipif(
    (request_module.__file__ or "").endswith(".py"), reason="it is of the compiled build"
)
@pytest.mark.parametrize(
    "value", [Request("key"), Measured(), Verdict(True, 0, 0, 0), WorkShape()], ids=type
)
def test_values_of_one_request_are_no_work_of_the_collector(value: object) -> None:
    assert not gc.is_tracked(value)


def test_a_request_that_is_made_has_all_that_was_said_of_it() -> None:
    said = {
        "caller": "ann",
        "cost": 3,
        "criticality": Criticality.BULK,
        "arrived_us": 5,
        "deadline_us": 9,
        "operation": "get",
        "shard": "s1",
        "table": "t",
        "attributes": {"rows": "7"},
    }
    made, built = make_request("k", **said), Request("k", **said)  # type: ignore[arg-type]
    fields = (*said, "key", "cost_ru", "cost_mru", "price_milli", "measured")
    assert [getattr(made, name) for name in fields] == [getattr(built, name) for name in fields]
    plain, same = make_request("k"), Request("k")
    assert [getattr(plain, name) for name in fields] == [getattr(same, name) for name in fields]
