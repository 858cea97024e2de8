from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.rule_index import RuleIndex

Path = Sequence[tuple[str, str | None]]
Rules = list[tuple[Path, str | None]]

RULES: Rules = [
    ([("tenant", "acme")], "acme"),
    ([("tenant", "acme"), ("path", "/search")], "acme searches"),
    ([("tenant", "acme"), ("path", "/api/*")], "acme's api"),
    ([("tenant", "acme"), ("path", "/api/v2/*")], "acme's api 2"),
    ([("tenant", "acme"), ("path", None)], "acme elsewhere"),
    ([("tenant", "ac*")], "tenants in ac"),
    ([("tenant", None), ("path", "/search")], "anyone searches"),
    ([("path", None)], "any path"),
]


@pytest.mark.parametrize(
    ("descriptor", "rule"),
    [
        ([("tenant", "acme")], "acme"),
        ([("tenant", "acorn")], "tenants in ac"),
        ([("tenant", "zeta")], None),  # the place of any tenant has no rule of its own
        ([("tenant", "acme"), ("path", "/search")], "acme searches"),
        ([("tenant", "acme"), ("path", "/api/v1")], "acme's api"),
        ([("tenant", "acme"), ("path", "/api/v2/x")], "acme's api"),  # the first glob in file order
        ([("tenant", "acme"), ("path", "/help")], "acme elsewhere"),
        ([("tenant", "zeta"), ("path", "/search")], "anyone searches"),
        ([("tenant", "zeta"), ("path", "/help")], None),
        ([("path", "/search")], "any path"),
        ([("path", "/search"), ("tenant", "acme")], None),  # order matters
        ([("tenant", "acme"), ("path", "/search"), ("verb", "GET")], None),  # ends too late
        ([("verb", "GET")], None),
        ([], None),
    ],
)
def test_the_most_exact_step_wins_at_each_step(
    descriptor: list[tuple[str, str]], rule: str | None
) -> None:
    assert RuleIndex(RULES).find(descriptor) == rule


def test_a_choice_once_made_stands() -> None:
    rules = RuleIndex(
        [
            ([("tenant", "acme"), ("path", "/a")], "exact"),
            ([("tenant", "ac*"), ("path", "/b")], "glob"),
            ([("tenant", None), ("path", "/c")], "key"),
        ]
    )
    assert rules.find([("tenant", "acme"), ("path", "/a")]) == "exact"
    assert rules.find([("tenant", "acme"), ("path", "/b")]) is None
    assert rules.find([("tenant", "acme"), ("path", "/c")]) is None
    assert rules.find([("tenant", "acid"), ("path", "/b")]) == "glob"
    assert rules.find([("tenant", "acid"), ("path", "/c")]) is None


def test_the_exact_value_goes_before_a_glob_that_was_written_first() -> None:
    rules = RuleIndex([([("k", "*")], "glob"), ([("k", None)], "key"), ([("k", "v")], "exact")])
    assert rules.find([("k", "v")]) == "exact"
    assert rules.find([("k", "w")]) == "glob"  # and the key alone is never reached


def test_keys_and_values_never_run_together() -> None:
    rules = RuleIndex([([("a", "b_c")], "one"), ([("a_b", "c")], "other"), ([("a", "b*")], "glob")])
    assert rules.find([("a", "b_c")]) == "one"
    assert rules.find([("a_b", "c")]) == "other"
    assert rules.find([("a_b", "cc")]) is None
    assert rules.find([("a", "bb")]) == "glob"


def test_a_rule_without_a_payload_takes_its_place_out_of_broader_rules() -> None:
    rules = RuleIndex([([("tenant", None)], "limited"), ([("tenant", "probe")], None)])
    assert rules.find([("tenant", "probe")]) is None
    assert rules.find([("tenant", "other")]) == "limited"


@pytest.mark.parametrize("upside_down", [False, True])
def test_the_order_of_long_and_short_paths_does_not_matter(upside_down: bool) -> None:
    rules: Rules = [([("a", "1")], "short"), ([("a", "1"), ("b", "2")], "long")]
    index = RuleIndex(rules[::-1] if upside_down else rules)
    assert index.find([("a", "1")]) == "short"
    assert index.find([("a", "1"), ("b", "2")]) == "long"


def test_a_place_may_go_on_by_many_keys() -> None:
    rules = RuleIndex([([("a", "1"), (key, "x")], key) for key in ("p", "q", "r")])
    assert [rules.find([("a", "1"), (key, "x")]) for key in ("p", "q", "r", "s")] == [
        "p",
        "q",
        "r",
        None,
    ]


def test_an_empty_value_is_a_value() -> None:
    rules = RuleIndex([([("k", "")], "empty"), ([("k", None)], "any")])
    assert (rules.find([("k", "")]), rules.find([("k", "x")])) == ("empty", "any")


def test_the_index_counts_its_rules() -> None:
    assert len(RuleIndex(RULES)) == len(RULES)
    assert len(RuleIndex([])) == 0
    assert RuleIndex([]).find([("a", "b")]) is None


def test_rules_may_come_from_a_generator_and_descriptors_as_any_sequence() -> None:
    rules = RuleIndex(([("n", str(n))], n) for n in range(10))
    assert rules.find((("n", "7"),)) == 7


@pytest.mark.parametrize(
    "path",
    [
        [("tenant", "acme"), ("path", "/search")],
        [("tenant", "acme")],
        [("tenant", "acme"), ("path", "/api/**")],
        [("path", None)],
    ],
)
def test_two_rules_with_the_same_path_are_refused_and_both_are_named(path: Path) -> None:
    with pytest.raises(ValueError, match=r"^rule 9 \('twin'\) repeats rule \d \(") as error:
        RuleIndex([*RULES, (path, "twin")])
    assert "tenant=acme" in str(error.value) or "both match path" in str(error.value)


def test_the_error_names_the_earlier_rule_with_its_payload() -> None:
    with pytest.raises(ValueError, match=r"rule 3 \('c'\) repeats rule 1 \('a'\): both match k=v"):
        RuleIndex([([("k", "v")], "a"), ([("k", "w")], "b"), ([("k", "v")], "c")])


def test_a_shield_is_a_rule_that_can_be_repeated_too() -> None:
    with pytest.raises(ValueError, match=r"rule 2 .* repeats rule 1"):
        RuleIndex([([("k", "v")], None), ([("k", "v")], "x")])


@pytest.mark.parametrize("steps", [0, 4])
def test_a_path_too_short_or_too_long_is_refused(steps: int) -> None:
    path = [("k", "v")] * steps
    with pytest.raises(ValueError, match="rule 1 must have from 1 to 3 steps"):
        RuleIndex([(path, "x")], depth_max=3)


def test_a_path_as_long_as_the_bound_is_kept() -> None:
    path = [("k", "v")] * 3
    index = RuleIndex([(path, "x")], depth_max=3)
    assert index.find(path) == "x"
    assert index.find(path * 100_000) is None


def test_a_step_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="rule 2 has a step without a key: a=b, =c"):
        RuleIndex([([("k", "v")], "x"), ([("a", "b"), ("", "c")], "y")])


@pytest.mark.parametrize("depth_max", [0, 1_001])
def test_a_depth_out_of_range_is_refused(depth_max: int) -> None:
    with pytest.raises(ValueError, match=r"^depth_max must be"):
        RuleIndex([], depth_max=depth_max)
    RuleIndex([], depth_max=1)
    RuleIndex([], depth_max=1_000)


def test_too_many_globs_that_share_a_beginning_are_refused() -> None:
    rules = [([("k", f"*{n}*")], n) for n in range(9)]
    assert RuleIndex(rules, tries_max=9).find([("k", "x8x")]) == 8
    with pytest.raises(ValueError, match="tries_max"):
        RuleIndex(rules, tries_max=8)


def test_a_key_of_ten_megabytes_is_looked_up_like_any_other() -> None:
    long = "x" * 10_000_000
    rules = RuleIndex([([("k", long)], "long"), ([("k", "x*")], "glob")])
    assert rules.find([("k", long)]) == "long"
    assert rules.find([("k", long + "y")]) == "glob"
    assert rules.find([(long, "k")]) is None


# Against the obvious way: read all rules at each step.

values = st.sampled_from(["", "a", "b", "ab", "ba", "abc"])
wild = st.sampled_from(["*", "a*", "*b", "a*b", "*b*", "a**"])
steps = st.tuples(st.sampled_from(["a", "a_b", "k"]), st.one_of(values, wild, st.none()))
paths = st.lists(steps, min_size=1, max_size=3)
descriptors = st.lists(st.tuples(st.sampled_from(["a", "a_b", "k", "z"]), values), max_size=4)


def same(path: Path) -> Path:
    return [(key, "a*" if value == "a**" else value) for key, value in path]


def slow_glob(pattern: str, value: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "*":
        return any(slow_glob(pattern[1:], value[at:]) for at in range(len(value) + 1))
    return value[:1] == pattern[0] and slow_glob(pattern[1:], value[1:])


def slow_find(rules: Rules, descriptor: Sequence[tuple[str, str]]) -> str | None:
    """The oracle: keep the rules whose path still fits, choosing one value at each step."""
    live = rules
    for at, (key, value) in enumerate(descriptor):
        live = [(path, payload) for path, payload in live if len(path) > at and path[at][0] == key]
        written = [same(path)[at][1] for path, _ in live]
        fitting = [
            one for one in written if one is not None and "*" in one and slow_glob(one, value)
        ]
        exact = value in written and "*" not in value
        chosen = value if exact else fitting[0] if fitting else None
        live = [(path, payload) for path, payload in live if same(path)[at][1] == chosen]
        if not live:
            return None
    ending = [payload for path, payload in live if len(path) == len(descriptor)]
    return ending[0] if ending and descriptor else None


@given(st.lists(st.tuples(paths, st.sampled_from(["x", "y", None])), max_size=12), descriptors)
def test_it_finds_what_reading_all_rules_finds(
    written: list[tuple[Path, str | None]], descriptor: list[tuple[str, str]]
) -> None:
    rules: Rules = []
    for path, payload in written:
        if same(path) not in [same(earlier) for earlier, _ in rules]:
            rules.append((path, payload and f"{payload}{len(rules)}"))
    index = RuleIndex(rules)
    assert len(index) == len(rules)
    assert sorted(index.payloads()) == sorted(payload for _, payload in rules if payload)
    assert index.find(descriptor) == slow_find(rules, descriptor)
    for path, _ in rules:  # and what each rule was written for
        words = [(key, "a" if value is None else value) for key, value in path]
        assert index.find(words) == slow_find(rules, words)
