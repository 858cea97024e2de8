from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rule import Failure, Mode
from sluicegate.rules.parser import is_native, parse_native
from sluicegate.rules.plain_values import read_text
from sluicegate.rules.problems import Problems
from sluicegate.rules.resources.rule import ANY_PRIORITY, Per
from sluicegate.rules.row_fields import FIELDS
from sluicegate.rules.shared_limits import SharedLimits
from tests.rules.resources.stories import book_of, native, parsed, problems_of, rule

WHOLE = """
version: 1
rules:
  - rule_id: playback
    resource_path: /api/v1/playback
    priority_bucket: CRITICAL
    limit: 5000
    window_seconds: 60
    burst_capacity: 1.2
    client_type: ANDROID_MOBILE
"""


def limit_of(**fields: object) -> Limit:
    file, _ = parsed(native({**rule("r"), **fields}))
    return file.rules[0].kind.limit


def test_a_rule_says_all_its_fields() -> None:
    file, shared_limits = parsed(WHOLE)
    (only,) = file.rules
    assert (only.rule_id, only.path, only.client_type) == (
        "playback", "/api/v1/playback", "ANDROID_MOBILE"
    )  # fmt: skip
    assert only.priority == Criticality.CRITICAL
    assert only.kind.limit == Limit(
        6_000, period_us=60_000_000, cells=1, algorithm=Algorithm.SLIDING_WINDOW
    )
    assert only.kind.units == 6_000
    assert only.kind.per is Per.USER
    assert shared_limits.rules[only.kind.shared_id].limits == (only.kind.limit,)
    assert shared_limits.rules[only.kind.shared_id].mode is Mode.ENFORCE


def test_what_is_left_out_is_every_path_priority_and_client() -> None:
    (only,) = parsed(native(rule("r")))[0].rules
    assert (only.path, only.client_type, only.priority) == ("", "", ANY_PRIORITY)


def test_a_burst_capacity_is_what_a_window_holds_and_what_a_bucket_is_as_large_as() -> None:
    assert limit_of(limit=10, burst_capacity=1.25).count == 12
    assert limit_of(limit=10).count == 10
    bucket = limit_of(limit=10, burst_capacity=1.5, algorithm="gcra")
    assert (bucket.count, bucket.burst) == (10, 15)
    assert limit_of(limit=10, algorithm="token_bucket").burst == 10


@given(limit=st.integers(1, 1 << 48), hundredths=st.integers(100, 1_000))
def test_a_burst_capacity_is_what_is_written_and_rounded_down(limit: int, hundredths: int) -> None:
    limit_read = limit_of(limit=limit, burst_capacity=hundredths / 100)
    assert limit_read.count == limit * Fraction(hundredths, 100) // 1


def test_a_window_is_seconds_or_words() -> None:
    assert limit_of(window_seconds=90).period_us == 90_000_000
    for text, us in {
        "90s": 90_000_000,
        "5m": 300_000_000,
        "100ms": 100_000,
        "1d": 86_400 * 10**6,
    }.items():
        file, _ = parsed(native({"rule_id": "r", "limit": 1, "window": text}))
        assert file.rules[0].kind.limit.period_us == us
    twice = native(*[{"rule_id": f"r{n}", "limit": 1, "window": "90s"} for n in range(2)])
    assert len(parsed(twice)[0].rules) == 2


def test_cells_make_a_sliding_window_finer() -> None:
    assert limit_of(cells=10).cells == 10
    assert limit_of().cells == 1


def test_the_terms_of_a_rule_reach_its_limit() -> None:
    file, shared_limits = parsed(
        native(
            rule("r", failure="local", local_share=0.5, mode="shadow", lease="10%", per="resource")
        )
    )
    (only,) = file.rules
    limit_rule = shared_limits.rules[only.kind.shared_id]
    assert (limit_rule.failure, limit_rule.local_share, limit_rule.mode) == (
        Failure.LOCAL,
        0.5,
        Mode.SHADOW,
    )
    assert limit_rule.lease == "10%"
    assert only.kind.shadow
    assert only.kind.per is Per.RESOURCE


def test_defaults_are_for_rules_that_do_not_say_it_themselves() -> None:
    top = {
        "defaults": {
            "algorithm": "gcra",
            "failure": "closed",
            "per": "user+resource",
            "burst_capacity": 2,
        }
    }
    file, shared_limits = parsed(
        native(rule("a"), rule("b", algorithm="fixed_window", failure="open"), **top)
    )
    first, second = file.rules
    assert first.kind.limit.algorithm is Algorithm.GCRA
    assert second.kind.limit.algorithm is Algorithm.FIXED_WINDOW
    assert first.kind.limit.burst == 20
    assert second.kind.limit.count == 20
    assert [shared_limits.rules[one.kind.shared_id].failure for one in file.rules] == [
        Failure.CLOSED, Failure.OPEN,
    ]  # fmt: skip
    assert first.kind.per is second.kind.per is Per.USER_AND_RESOURCE


def test_a_default_is_not_for_rules_that_cannot_have_it() -> None:
    top = {"defaults": {"cells": 5, "lease": "10%", "algorithm": "sliding_window"}}
    log, harsh = rule("a", algorithm="sliding_log"), rule("b", count_refused=True)
    file, shared_limits = parsed(native(log, harsh, rule("c"), **top))
    kinds = [one.kind for one in file.rules]
    assert [shared_limits.rules[kind.shared_id].lease for kind in kinds] == [None, None, "10%"]
    assert [kind.limit.cells for kind in kinds] == [1, 5, 5]


def test_a_rule_that_is_off_is_read_and_does_not_apply() -> None:
    file, shared_limits = parsed(native(rule("a", mode="off"), rule("b", mode=False)))
    assert file.rules == []
    assert file.rules_count == 2
    assert shared_limits.rules == {}
    assert problems_of(native(rule("a", mode="off", limit=0))) != []


def test_rules_that_say_the_same_share_a_kind_and_a_limit() -> None:
    file, shared_limits = parsed(native(*[rule(f"r{n}", f"/{n}") for n in range(9)]))
    assert len({id(one.kind) for one in file.rules}) == 1
    assert len(shared_limits.rules) == 1


def test_rules_in_toml_say_the_same() -> None:
    toml = "version = 1\n[[rules]]\nrule_id = 'a'\nlimit = 5\nwindow_seconds = 60\nmode = false\n"
    read = read_text(toml, form="toml", source="x.toml")
    problems = Problems("x.toml", read.lines)
    file = parse_native(read.value, problems, SharedLimits())
    assert file is not None
    assert (len(problems), file.rules_count, file.rules) == (0, 1, [])


WRONG = [
    ({"limit": 0}, "rules[0].limit", "close the door"),
    ({"limit": True}, "rules[0].limit", "2^48"),
    ({"limit": (1 << 48) + 1}, "rules[0].limit", "2^48"),
    ({"limit": "10"}, "rules[0].limit", "2^48"),
    ({"rule_id": None}, "rules[0].rule_id", "128 letters"),
    ({"rule_id": 7}, "rules[0].rule_id", "quotes"),
    ({"rule_id": "a b"}, "rules[0].rule_id", "128 letters"),
    ({"rule_id": "a" * 129}, "rules[0].rule_id", "128 letters"),
    ({"resource_path": "api"}, "rules[0].resource_path", "slash"),
    ({"resource_path": 7}, "rules[0].resource_path", "/api/v1/playback"),
    ({"priority_bucket": "HIGH"}, "rules[0].priority_bucket", "CRITICAL, DEGRADED"),
    ({"priority_bucket": 0}, "rules[0].priority_bucket", "CRITICAL, DEGRADED"),
    ({"client_type": 7}, "rules[0].client_type", "quotes"),
    ({"client_type": ""}, "rules[0].client_type", "1 to 256"),
    ({"client_type": "a" * 257}, "rules[0].client_type", "1 to 256"),
    ({"client_type": "\ud800"}, "rules[0].client_type", "1 to 256"),
    ({"window_seconds": 0}, "rules[0].window_seconds", "window: 90s"),
    ({"window_seconds": 1.5}, "rules[0].window_seconds", "window: 90s"),
    ({"window_seconds": 366 * 86_400 + 1}, "rules[0].window_seconds", "31,622,400"),
    ({"window": "90s"}, "rules[0].window", "window_seconds"),
    ({"burst_capacity": 0.9}, "rules[0].burst_capacity", "1 to 10"),
    ({"burst_capacity": 10.1}, "rules[0].burst_capacity", "1 to 10"),
    ({"burst_capacity": True}, "rules[0].burst_capacity", "1 to 10"),
    ({"burst_capacity": float("nan")}, "rules[0].burst_capacity", "1 to 10"),
    ({"algorithm": "magic"}, "rules[0].algorithm", "sliding_window"),
    ({"algorithm": "gcra", "cells": 2}, "rules[0].cells", "only sliding_window"),
    ({"cells": 0}, "rules[0].cells", "1 to 1,000"),
    ({"algorithm": "sliding_log", "limit": 1_001}, "rules[0].limit", "at most 1,000"),
    ({"failure": "maybe"}, "rules[0].failure", "open, closed, local"),
    ({"local_share": 2}, "rules[0].local_share", "above 0"),
    ({"mode": "dry"}, "rules[0].mode", "enforce, shadow, off"),
    ({"lease": "all"}, "rules[0].lease", "percentage"),
    ({"lease": 11}, "rules[0].lease", "1 to the limit"),
    ({"lease": "10%", "count_refused": True}, "rules[0].lease", "count_refused"),
    ({"lease": "10%", "algorithm": "sliding_log"}, "rules[0].lease", "sliding_log"),
    ({"count_refused": 1}, "rules[0].count_refused", "true or false"),
    ({"per": "ip"}, "rules[0].per", "user, resource, user+resource"),
    ({"resource": "/a"}, "rules[0].resource", "did you mean 'resource_path'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field", "remedy"), WRONG, ids=[repr(one[0])[:40] for one in WRONG]
)
def test_what_is_wrong_with_a_rule_is_told(
    fields: dict[str, object], field: str, remedy: str
) -> None:
    problems = problems_of(native({**rule("r"), **fields}))
    assert len(problems) == 1
    assert problems[0].startswith(f"{field}:")
    assert remedy in problems[0]


@pytest.mark.parametrize(
    "text",
    ["90", "s", "1.5m", "-1s", "1 s", "0s", "367d", "", "9" * 30 + "s", "1s burst 4", 90, "²s"],
)
def test_a_window_that_is_none_is_told(text: object) -> None:
    (problem,) = problems_of(native({"rule_id": "r", "limit": 1, "window": text}))
    assert problem.startswith("rules[0].window:")
    assert "90s, 5m, 1h or 1d" in problem


SLOW_GLOBS = {f"*{n}*": "BULK" for n in range(1_001)}


@pytest.mark.parametrize(
    ("value", "field", "remedy"),
    [
        ({"version": 2, "rules": []}, "version", "version: 1"),
        ({"version": True, "rules": []}, "version", "version: 1"),
        ({"version": 1, "rules": 7}, "rules", "a list"),
        ({"version": 1, "rules": [7]}, "rules[0]", "rule_id"),
        ({"version": 1, "rules": [], "rule": []}, "rule", "did you mean 'rules'"),
        (native(defaults={"limit": 1}), "defaults.limit", "no such field"),
        (native(defaults={"mode": "x"}), "defaults.mode", "enforce"),
        (native(defaults=7), "defaults", "algorithm"),
        (native(priorities={"header": "a b"}), "priorities.header", "x-netflix.request-name"),
        (native(priorities={"names": {"a": "BIG"}}), "priorities.names.a", "CRITICAL"),
        (native(priorities={"names": {"": "BULK"}}), "priorities.names", "1 to 256"),
        (native(priorities={"default": "CRITICAL"}), "priorities.default", "lower"),
        (native(priorities={"nams": {}}), "priorities.nams", "names"),
        (native(callers={"strangers": "CRITICAL"}), "callers.strangers", "lower"),
        (native(callers={"names": ["a"]}), "callers.names", "fields"),
        (native(client_type_header=""), "client_type_header", "x-client-type"),
        (native(priorities={"names": SLOW_GLOBS}), "priorities.names", "tries"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_told(value: object, field: str, remedy: str) -> None:
    problems = problems_of(value)
    assert len(problems) == 1, problems
    assert problems[0].startswith(field)
    assert remedy in problems[0]


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    top = "version: 1\ndefaults:\n  mode: odd\nrules:\n"
    text = top + "  - rule_id: a\n    limit: 0\n    window: 9\n  - {}\n"
    problems = problems_of(text)
    assert [one.split(":")[0] for one in problems] == [
        "line 3",
        "line 6",
        "line 7",
        "line 4",
        "line 4",
        "line 4",
    ]
    # A bad default is told once, and not once a rule.
    assert sum("mode" in one for one in problems) == 1


def test_two_rules_may_not_have_one_name_wherever_they_stand() -> None:
    with pytest.raises(ValueError, match=r"1:rules.1.rule_id: 'a'"):
        book_of(native(rule("a", "/a")), native(rule("b", "/b"), rule("a", "/c", mode="off")))


def test_what_settles_priorities_stands_in_one_file() -> None:
    for field, value in (("priorities", {}), ("callers", {}), ("client_type_header", "x-kind")):
        one = native(**{field: value})
        book_of(one, native())
        with pytest.raises(ValueError, match=f"1:{field}"):
            book_of(one, one)


def test_more_rules_than_the_bound_are_refused() -> None:
    problems = Problems("x", {})
    assert parse_native(native(rule("a"), rule("b")), problems, SharedLimits(), rules_max=1) is None
    assert len(problems) == 1


def test_more_different_limits_than_the_bound_are_refused() -> None:
    problems = Problems("x", {})
    value = native(rule("a", "/a"), rule("b", "/b", limit=11), rule("c", "/c"))
    file = parse_native(value, problems, SharedLimits(shared_limits_max=1))
    assert file is not None
    assert len(problems) == 1
    with pytest.raises(ValueError, match="shared_limits_max"):
        problems.raise_if_any()


def test_what_is_alike_in_python_is_not_alike_in_a_file() -> None:
    (problem,) = problems_of(native(rule("a", count_refused=True), rule("b", count_refused=1)))
    assert problem.startswith("rules[1].count_refused")
    (problem,) = problems_of(native(rule("a", local_share=1), rule("b", local_share=True)))
    assert problem.startswith("rules[1].local_share")


def test_the_tables_of_one_file_are_those_of_the_book() -> None:
    tables = {
        "priorities": {"header": "x-name", "names": {"a": "BULK"}},
        "callers": {"names": {"boss": "CRITICAL"}},
        "client_type_header": "x-kind",
    }
    for files in ([native(**tables), native()], [native(), native(**tables)]):
        priorities = book_of(*files)[0].priorities
        assert priorities.client_type_header == "x-kind"
        assert priorities.settle("ann", None, {"x-name": "a"}) is Criticality.BULK
        assert priorities.settle("boss", Criticality.CRITICAL, {}) is Criticality.CRITICAL


def test_a_book_knows_its_rules_by_their_names() -> None:
    book, _ = book_of(native(rule("a", "/a"), rule("b", mode="off")), native(rule("c", "/c", 7)))
    found = book.rule("c")
    assert found is not None
    assert found.kind.limit.count == 7
    assert (book.rule("b"), book.rule("d"), len(book)) == (None, None, 3)


def test_a_file_is_native_by_its_rules() -> None:
    assert is_native({"rules": []})
    others: tuple[object, ...] = ({"limits": {}}, {"domain": "a"}, [], None, "rules")
    for other in others:
        assert not is_native(other)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*FIELDS, "version", "rules", "x"]), inner, max_size=6
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_a_file_says_it_is_read_or_refused(value: object) -> None:
    for whole in (
        value,
        {"version": 1, "rules": value},
        native(defaults=value),
        {"version": 1, "rules": [value]},
    ):
        problems = Problems("x", {})
        file = parse_native(whole, problems, SharedLimits())
        assert file is not None or len(problems)
