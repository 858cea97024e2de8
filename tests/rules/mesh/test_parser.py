"""Files for a mesh: what is refused, with its line and a remedy; and what is taken."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.rule import Algorithm
from sluicegate.limits.rule import Failure, Mode, Rule
from sluicegate.rules.mesh.parser import DEPTH_MAX, is_mesh, parse_domain
from sluicegate.rules.mesh.rule import MeshRule, Semantics
from sluicegate.rules.problems import BadRules, Problems
from sluicegate.rules.shared_limits import SharedLimits
from tests.rules.mesh.world import ENVOY, SLUICEGATE, domain_of

HEAD = "domain: shop\ndescriptors:\n"
LIMIT = "rate_limit: {unit: minute, requests_per_unit: 3}"

# A file, the line it is refused at, and a word of the reason.
REFUSED = {
    "an empty domain": ('domain: ""\ndescriptors: []', 1, "must not be empty"),
    "no domain": ("descriptors: []", 0, "must not be empty"),
    "a domain that is no text": ("domain: [a]", 1, "a text"),
    "an unknown field at the top": ("domain: a\ndescriptor: []", 2, "descriptors"),
    "an unknown field": (HEAD + "  - key: a\n    valu: b", 4, "'value'"),
    "an unknown field of a limit": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      request_per_unit: 3",
        6,
        "'requests_per_unit'",
    ),
    "an unknown field of replaces": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: true\n"
        "      replaces:\n        - nam: x",
        7,
        "'name'",
    ),
    "no key": (HEAD + "  - value: b", 3, "must not be empty"),
    "an empty key": (HEAD + '  - value: b\n    key: ""', 4, "must not be empty"),
    "a key that is a list": (HEAD + "  - key: [a]", 3, "a text"),
    "a field's name that is a list": (HEAD + "  - [a]: b", 3, "a field's name is a text"),
    "a value that YAML reads as a number with a fraction": (
        HEAD + "  - key: a\n    value: 1.10",
        4,
        "in quotes",
    ),
    "descriptors that are no list": ("domain: a\ndescriptors: {key: a}", 2, "a list"),
    "a descriptor that is no mapping": (HEAD + "  - key: a\n  - b", 2, "a mapping"),
    "a limit that is no mapping": (HEAD + "  - key: a\n    rate_limit: 5", 4, "a mapping"),
    "the same key twice": (HEAD + "  - key: a\n  - key: b\n  - key: a", 5, "stands twice"),
    "the same key and value twice": (
        HEAD + "  - {key: a, value: x}\n  - {key: a, value: y}\n  - {key: a, value: x}",
        5,
        "stands twice",
    ),
    "no unit": (HEAD + "  - key: a\n    rate_limit:\n      requests_per_unit: 5", 4, "give one of"),
    "a unit that there is not": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: fortnight",
        5,
        "give one of second",
    ),
    "the unit unknown": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: UNKNOWN",
        5,
        "give one of second",
    ),
    "a unit for what is unlimited": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: true\n      unit: day",
        6,
        "leave it out",
    ),
    "a window for what is unlimited": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: true\n      window: 3s",
        6,
        "leave it out",
    ),
    "unlimited that is a text": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: yes",
        5,
        "true or false",
    ),
    "a negative limit": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: -1",
        6,
        "a whole number",
    ),
    "more than the protocol can tell": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: 4294967296",
        6,
        "4,294,967,295",
    ),
    "a rule that replaces itself": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: true\n      name: me\n"
        "      replaces:\n        - name: me",
        8,
        "cannot replace itself",
    ),
    "an empty name to replace": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: true\n"
        '      replaces:\n        - name: ""',
        7,
        "name the rule",
    ),
    "replaces that is no list": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: true\n      replaces: x",
        6,
        "a list",
    ),
    "a replaced rule that is no mapping": (
        HEAD + "  - key: a\n    rate_limit:\n      unlimited: true\n      replaces: [x]",
        6,
        "name the rule",
    ),
    "a shared threshold without a star": (
        HEAD + "  - key: a\n    value: b\n    share_threshold: true",
        5,
        "'*'",
    ),
    "a shared threshold of a key alone": (
        HEAD + "  - key: a\n    share_threshold: true",
        4,
        "'*'",
    ),
    "a flag that is no flag": (HEAD + "  - key: a\n    shadow_mode: 1", 4, "true or false"),
    "metadata that is no mapping": (HEAD + "  - key: a\n    metadata: x", 4, "a mapping"),
    "what is no YAML": ("domain: a\ndescriptors: ]", 2, "not YAML"),
    # Ours.
    "a unit and a window": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      window: 3s",
        6,
        "one of them",
    ),
    "a window of nothing": (
        HEAD + "  - key: a\n    rate_limit:\n      window: 0s",
        5,
        "write it as",
    ),
    "a window of two years": (
        HEAD + "  - key: a\n    rate_limit:\n      window: 730d",
        5,
        "at most a year",
    ),
    "a window without a unit": (
        HEAD + "  - key: a\n    rate_limit:\n      window: 90",
        5,
        "write it as",
    ),
    "an algorithm that there is not": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      algorithm: magic",
        6,
        "gcra",
    ),
    "a burst of a window": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: 3\n"
        "      burst: 5",
        7,
        "no burst",
    ),
    "a burst of nothing": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      algorithm: gcra\n"
        "      burst: 0",
        7,
        "from 1",
    ),
    "a burst that takes a century": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: year\n      requests_per_unit: 1\n"
        "      algorithm: gcra\n      burst: 100",
        8,
        "35 years",
    ),
    "a log that is too long": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: 1001\n"
        "      algorithm: sliding_log",
        6,
        "1,000 entries",
    ),
    "a failure policy that there is not": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      failure: maybe",
        6,
        "open, closed, local",
    ),
    "a lease of what counts refused hits": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: 50\n"
        "      count_refused: true\n      lease: auto",
        8,
        "leave it out",
    ),
    "a lease that is no lease": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: 50\n"
        "      algorithm: gcra\n      lease: lots",
        8,
        "auto",
    ),
    "a lease that is a list": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      requests_per_unit: 50\n"
        "      algorithm: gcra\n      lease: []",
        8,
        "auto",
    ),
    "count_refused that is no flag": (
        HEAD + "  - key: a\n    rate_limit:\n      unit: day\n      count_refused: 1",
        6,
        "true or false",
    ),
    "one limit and several": (
        HEAD + f"  - key: a\n    {LIMIT}\n    rate_limits: [{{unit: day}}]",
        5,
        "one list",
    ),
    "several limits that are none": (HEAD + "  - key: a\n    rate_limits: []", 4, "1 to 8"),
    "one of several that is no mapping": (HEAD + "  - key: a\n    rate_limits: [5]", 4, "mapping"),
    "two limits of one window": (
        HEAD + "  - key: a\n    rate_limits:\n      - {unit: minute, requests_per_unit: 2}\n"
        "      - {window: 60s, requests_per_unit: 3}",
        4,
        "keep one",
    ),
    "one of several that is unlimited": (
        HEAD + "  - key: a\n    rate_limits:\n      - unlimited: true",
        5,
        "alone",
    ),
    "a priority that there is not": (HEAD + "  - key: a\n    priority: HIGH", 4, "BULK"),
    "a mode that there is not": (HEAD + "  - key: a\n    mode: quiet", 4, "enforce, shadow, off"),
    "a mode that contradicts": (
        HEAD + "  - key: a\n    shadow_mode: true\n    mode: enforce",
        5,
        "shadow_mode",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("semantics", [ENVOY, SLUICEGATE])
def test_what_cannot_be_used_is_told_with_its_line(what: str, semantics: Semantics) -> None:
    text, line, word = REFUSED[what]
    with pytest.raises(BadRules) as caught:
        domain_of(text, semantics)
    found = [problem for problem in caught.value.problems if word in problem.remedy]
    assert found, str(caught.value)
    assert found[0].line == line, str(caught.value)
    assert caught.value.source == "mesh.yaml"


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(BadRules) as caught:
        domain_of(HEAD + "  - key: a\n    valu: b\n  - value: c\n  - key: d\n    rate_limit: 5")
    assert [problem.line for problem in caught.value.problems] == [4, 5, 7]


def test_a_tree_without_an_end_is_refused() -> None:
    node: dict[str, Any] = {"key": "a"}
    for _ in range(DEPTH_MAX):
        node = {"key": "a", "descriptors": [node]}
    problems = Problems("deep", {})
    parse_domain({"domain": "a", "descriptors": [node]}, problems, SharedLimits(), ENVOY)
    with pytest.raises(BadRules, match="16 descriptors in one another"):
        problems.raise_if_any()


def test_too_many_different_limits_are_refused_where_they_stand() -> None:
    with pytest.raises(BadRules, match=r"line 6.*shared_limits_max"):
        domain_of(
            HEAD + "  - key: a\n    rate_limit: {unit: day, requests_per_unit: 1}\n"
            "  - key: b\n    rate_limit: {unit: day, requests_per_unit: 2}",
            ENVOY,
            SharedLimits(shared_limits_max=1),
        )


def test_this_format_is_told_from_others_by_its_domain() -> None:
    assert is_mesh({"domain": "a"})
    assert not is_mesh({"version": 1, "limits": {}})
    assert not is_mesh(["domain"])


def only(text: str, semantics: Semantics = SLUICEGATE) -> tuple[MeshRule, Rule]:
    """The one rule of these fields, and its shape."""
    shared_limits = SharedLimits()
    domain = domain_of(HEAD + "  - key: a\n" + text, semantics, shared_limits)
    [(_, rule)] = domain.rules
    assert rule is not None
    [shape] = shared_limits.rules.values()
    return rule, shape


UNITS = [
    ("second", 1, 1),
    ("Minute", 60, 2),
    ("HOUR", 3_600, 3),
    ("day", 86_400, 4),
    ("month", 2_592_000, 5),
    ("year", 31_536_000, 6),
    ("week", 604_800, 7),
]


@pytest.mark.parametrize(("unit", "seconds", "number"), UNITS)
def test_a_unit_is_a_length_and_a_number_in_any_case(unit: str, seconds: int, number: int) -> None:
    rule, shape = only(f"    rate_limit: {{unit: {unit}, requests_per_unit: 5}}")
    [limit] = shape.limits
    assert not isinstance(limit, str)
    assert limit.period_us == seconds * 1_000_000
    assert rule.form.countings[0].wire_limit.unit == number


def test_semantics_say_how_a_rule_counts_that_does_not_say_it() -> None:
    _, envoy = only(f"    {LIMIT}", ENVOY)
    _, ours = only(f"    {LIMIT}", SLUICEGATE)
    [harsh], [mild] = envoy.limits, ours.limits
    assert not isinstance(harsh, str)
    assert not isinstance(mild, str)
    assert harsh.algorithm is Algorithm.FIXED_WINDOW
    assert envoy.count_refused is True
    assert mild.algorithm is Algorithm.SLIDING_WINDOW
    assert ours.count_refused is False
    assert mild.count == 3


def test_our_own_fields_reach_the_limiter() -> None:
    rule, shape = only(
        "    priority: bulk\n    mode: shadow\n    rate_limit:\n      window: 90s\n"
        "      requests_per_unit: 10\n      algorithm: gcra\n      burst: 20\n"
        "      failure: closed\n      lease: 10%\n      name: ours"
    )
    [limit] = shape.limits
    assert not isinstance(limit, str)
    assert (limit.count, limit.period_us, limit.burst) == (10, 90_000_000, 20)
    assert limit.algorithm is Algorithm.GCRA
    assert (shape.failure, shape.lease, shape.mode) == (Failure.CLOSED, "10%", Mode.SHADOW)
    assert rule.form.priority is Criticality.BULK
    wire_limit = rule.form.countings[0].wire_limit
    assert (wire_limit.requests_per_unit, wire_limit.unit, wire_limit.name) == (10, 0, "ours")


def test_a_window_as_long_as_a_unit_is_told_as_that_unit() -> None:
    rule, _ = only("    rate_limit: {window: 60s, requests_per_unit: 5}")
    assert rule.form.countings[0].wire_limit.unit == 2


def test_rules_that_say_the_same_share_their_form() -> None:
    rules = "\n".join(f"  - {{key: a, value: v{n}, {LIMIT}}}" for n in range(50))
    shared_limits = SharedLimits()
    domain = domain_of(HEAD + rules, ENVOY, shared_limits)
    assert len({id(rule.form) for _, rule in domain.rules if rule}) == 1
    assert len(shared_limits.rules) == 1


def test_aliases_and_merges_are_read() -> None:
    domain = domain_of(
        "domain: shop\ndescriptors:\n  - key: a\n    rate_limit: &five\n      unit: day\n"
        "      requests_per_unit: 5\n  - key: b\n    rate_limit: *five\n"
        "  - key: c\n    rate_limit: {<<: *five, unit: hour}"
    )
    wire_limits = [rule.form.countings[0].wire_limit for _, rule in domain.rules if rule]
    assert [(one.requests_per_unit, one.unit) for one in wire_limits] == [(5, 4), (5, 4), (5, 3)]


def test_a_number_is_a_text_where_a_text_is_wanted() -> None:
    domain = domain_of(HEAD + f"  - key: code\n    value: 404\n    {LIMIT}")
    assert domain.rules[0][0] == (("code", "404"),)
