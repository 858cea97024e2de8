"""Rule texts: what a rule says, as text for people and as a value that tells two rules apart.

A change of rules is found by comparing the rules of the files that differ between two rule sets; a
file that is the same to the byte says the same, and is not read again.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.rules.mesh.rule import MeshRule
from sluicegate.rules.resources.rule import ANY_PRIORITY, Per, ResourceRule
from sluicegate.shadow.replay_rules import ReplayRules, read_file
from sluicegate.shadow.side import AnyRule

NATIVE: Final = "native"
ENVOY: Final = "envoy"

# A rule's name says which format it is of: both may call one thing the same.
RuleName: TypeAlias = tuple[str, str]

_UNITS: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"))


class RuleText(NamedTuple):
    """What a rule says: `text` for people, `identity` for the comparison."""

    text: str
    identity: tuple[object, ...]


def name_of(rule: AnyRule) -> RuleName:
    """The name of a rule, with its format."""
    return (NATIVE if isinstance(rule, ResourceRule) else ENVOY), rule.rule_id


def rule_text(rule: AnyRule) -> RuleText:
    """What it says."""
    return _native(rule) if isinstance(rule, ResourceRule) else _envoy(rule)


def spans_entities(rule: AnyRule) -> bool:
    """Whether it counts the work of all entities together, by what it says."""
    if isinstance(rule, ResourceRule):
        return rule.kind.per is Per.RESOURCE
    return rule.form.varying == -1


def duration_text(us: int) -> str:
    """A time, in the largest unit that it is a whole number of."""
    for unit_us, unit in _UNITS:
        if us >= unit_us and us % unit_us == 0:
            return f"{us // unit_us} {unit}"
    return f"{us / 1_000_000:g} s"


def rules_of_changed(
    current: ReplayRules, candidate: ReplayRules
) -> tuple[dict[RuleName, RuleText], ...]:
    """The rules of those files that the two do not share: of the current, of the candidate."""
    return tuple(
        _rules_of(one, [name for name in one.files if other.files.get(name) != one.files[name]])
        for one, other in ((current, candidate), (candidate, current))
    )


def _rules_of(rules: ReplayRules, names: list[str]) -> dict[RuleName, RuleText]:
    found: dict[RuleName, RuleText] = {}
    for name in names:
        part, _ = read_file(name, rules.files[name], rules.semantics)
        several: list[AnyRule] = []
        if part.domain is not None:
            several += [rule for _, rule in part.domain.rules if rule is not None]
        if part.native is not None:
            several += part.native.rules
            if part.native.callers is not None:
                several += part.native.callers.quotas.values()
        found.update({name_of(rule): rule_text(rule) for rule in several})
    return found


def _native(rule: ResourceRule) -> RuleText:
    kind = rule.kind
    text = [f"{_limit(kind.limit)} per {kind.per.value}"]
    if rule.path:
        text.append(f"on {rule.path}")
    if rule.client_type:
        text.append(f"for {rule.client_type}")
    if rule.priority != ANY_PRIORITY:
        text.append(f"of {Criticality(rule.priority).name}")
    if kind.shadow:
        text.append("(tried out)")
    identity = (kind.shared_id, kind.per.value, rule.path, rule.client_type, rule.priority)
    return RuleText(" ".join(text), identity)


def _envoy(rule: MeshRule) -> RuleText:
    form = rule.form
    limits = [
        "nothing" if counting.limit is None else _limit(counting.limit)
        for counting in form.countings
    ]
    text = " and ".join(limits) or "no limit"
    if form.priority is not None:
        text += f" of {form.priority.name}"
    if form.quota:
        text += " (quota)"
    if form.shadow:
        text += " (tried out)"
    counted = [
        (str(counting.rule), counting.count, counting.period_us, counting.above)
        for counting in form.countings
    ]
    identity = (
        tuple(counted),
        form.levels,
        form.names,
        tuple(sorted(form.replaces)),
        form.shadow,
        form.quota,
        form.priority,
    )
    return RuleText(text, identity)


def _limit(limit: Limit) -> str:
    text = f"{limit.count:,} in {duration_text(limit.period_us)}"
    if limit.algorithm in BURSTING:
        return f"{text}, {limit.burst:,} at once ({limit.algorithm.value})"
    if limit.algorithm is Algorithm.SLIDING_WINDOW:
        return text
    return f"{text} ({limit.algorithm.value})"
