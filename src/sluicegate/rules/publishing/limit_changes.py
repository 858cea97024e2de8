"""Limit changes: the rules whose limit a proposal changes so much that it takes a confirmation.

A rule is known by its format and its name. Its limit is the lowest rate that it enforces; a rule
that is gone, unlimited or in shadow mode enforces none. A large change is a rate or a burst that
rises or falls by `FACTOR`, or a limit that is no longer enforced. A new limit is not a large
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Limit
from sluicegate.contracts.rulebook import FileChange
from sluicegate.limits.rates import format_rate
from sluicegate.rules.mesh.rule import Form, Semantics
from sluicegate.rules.parser import RULES_MAX
from sluicegate.rules.problems import BadRules
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.service_rule_set import ENVOY, NATIVE, ParsedFile, read_rules_file
from sluicegate.rules.shared_limits import SHARED_LIMITS_MAX_DEFAULT
from sluicegate.rules.snapshot.snapshot import rules_files

FACTOR: Final = 10
SHOWN_MAX: Final = 5  # rules that an error names

_RuleName: TypeAlias = tuple[str, str]


class _Enforced(NamedTuple):
    """The limit that a rule enforces: units per microsecond, units at once, and both in words."""

    rate: Fraction
    burst: int
    words: str


class LimitChange(NamedTuple):
    """A large change of one rule, with its limits in words."""

    rule_id: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"rule {self.rule_id!r} changes from {self.before} to {self.after}"


def large_changes(changes: Iterable[FileChange]) -> list[LimitChange]:
    """The rules whose limit changes by `FACTOR` or is no longer enforced, in order of name."""
    before: dict[_RuleName, _Enforced] = {}
    after: dict[_RuleName, _Enforced] = {}
    for change in changes:
        if rules_files({change.name: b""}):
            before.update(_limits_in(change.name, change.before))
            after.update(_limits_in(change.name, change.after))
    found: list[LimitChange] = []
    for name, old in sorted(before.items()):
        new = after.get(name)
        if new is None:
            found.append(LimitChange(name[1], old.words, "no limit"))
        elif _is_large(old.rate, new.rate) or _is_large(old.burst, new.burst):
            found.append(LimitChange(name[1], old.words, new.words))
    return found


def unconfirmed(changes: Sequence[LimitChange], how: str) -> BadValue:
    """The error of a proposal that makes large changes; `how` they are confirmed."""
    remedy = f"{how} for a limit that changes {FACTOR}-fold or is removed"
    return BadValue("confirm", False, f"{describe(changes)}; {remedy}")


def describe(changes: Sequence[LimitChange]) -> str:
    """The first `SHOWN_MAX` of these changes, and how many more there are."""
    more = f", and {len(changes) - SHOWN_MAX:,} more" if len(changes) > SHOWN_MAX else ""
    return ", ".join(map(str, changes[:SHOWN_MAX])) + more


def _is_large(before: Fraction | int, after: Fraction | int) -> bool:
    return before != after and max(before, after) >= FACTOR * min(before, after)


def _limits_in(name: str, data: bytes | None) -> dict[_RuleName, _Enforced]:
    parsed = None if data is None else _parse(name, data)
    if parsed is None:
        return {}
    found: dict[_RuleName, _Enforced | None] = {}
    if parsed.domain is not None:
        for _, mesh in parsed.domain.rules:
            if mesh is not None:
                found[ENVOY, mesh.rule_id] = _of_mesh(mesh.form)
    if parsed.native is not None:
        callers = parsed.native.callers
        quotas = () if callers is None else callers.quotas.values()
        for native in (*parsed.native.rules, *quotas):
            found[NATIVE, native.rule_id] = _of_native(native)
    return {rule: limit for rule, limit in found.items() if limit is not None}


def _parse(name: str, data: bytes) -> ParsedFile | None:
    """The parsed file, by either semantics; None if only an older program accepted it."""
    sha = sha256(data).hexdigest()
    for semantics in Semantics:
        try:
            return read_rules_file(
                name, sha, data, semantics, RULES_MAX, SHARED_LIMITS_MAX_DEFAULT
            )[0]
        except BadRules:
            continue
    return None


def _of_native(rule: ResourceRule) -> _Enforced | None:
    return None if rule.kind.shadow else _of_limit(rule.kind.limit)


def _of_mesh(form: Form) -> _Enforced | None:
    if form.unlimited or form.shadow:
        return None
    return min(
        (
            _Enforced(Fraction(0), 1, "nothing")
            if counting.limit is None
            else _of_limit(counting.limit)
            for counting in form.countings
        ),
        key=lambda one: one.rate,
    )


def _of_limit(limit: Limit) -> _Enforced:
    rate = Fraction(limit.count, limit.period_us)
    if limit.algorithm in BURSTING:
        return _Enforced(rate, limit.burst, format_rate(limit))
    # A window holds what it admits: its count says nothing that its rate does not.
    return _Enforced(rate, 1, format_rate(Limit(limit.count, period_us=limit.period_us)))
