"""Rule: limits, and the terms on which they are kept.

A rate string is the shortest rule. This is the long form, for what a rate cannot say: what happens
when the store does not answer, whether a share may be spent locally, whether it is enforced at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, TypeAlias, TypeVar, final

from sluicegate.contracts.edge import Given, flag, share
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit

# As `Limiter` takes it: the name of a rule or a rate string, a limit, or a whole rule.
RuleLike: TypeAlias = "str | Limit | Rule"

LIMITS_REMEDY: Final = 'give a rate as "100/minute", a Limit, or a list of them'
RULE_REMEDY: Final = 'give a rate as "100/minute", a Limit, a Rule or the name of a rule'
LEASE_REMEDY: Final = 'give "auto", a share as "10%", or a number of units'


class Failure(Enum):
    """What is decided when the store does not answer."""

    OPEN = "open"  # admit
    CLOSED = "closed"  # refuse, as STORE_UNAVAILABLE
    LOCAL = "local"  # count in this process, against a share of the limit


class Mode(Enum):
    """Whether a rule's refusals hold."""

    ENFORCE = "enforce"
    SHADOW = "shadow"  # counted and reported, but admitted
    OFF = "off"  # not even counted


Term = TypeVar("Term", bound=Enum)


@final
class Rule:
    """One limit or several (as a rate string, limits, or a mix), and the terms.

    What is None is as the limiter says. `failure`: open, closed or local; `local_share` is the part
    of the limit that one process may admit under `local`, above 0 and up to 1. `lease`: "auto", a
    percentage like "10%", or a number of units. `mode`: enforce, shadow or off. `count_refused`:
    what is refused is charged all the same.
    """

    __slots__ = (
        "algorithm",
        "count_refused",
        "failure",
        "lease",
        "limits",
        "local_share",
        "mode",
    )

    def __init__(
        self,
        limits: Given[str | Limit | Sequence[str | Limit]],
        *,
        algorithm: Given[str | Algorithm | None] = None,
        failure: Given[str | Failure | None] = None,
        local_share: Given[float | None] = None,
        lease: Given[str | int | None] = None,
        mode: Given[str | Mode] = Mode.ENFORCE,
        count_refused: Given[bool | None] = None,
    ) -> None:
        self.limits = _limits(limits)
        self.algorithm = None if algorithm is None else term(Algorithm, "rule.algorithm", algorithm)
        self.failure = None if failure is None else term(Failure, "rule.failure", failure)
        if local_share is not None:
            share("rule.local_share", local_share)
        if lease is not None and not isinstance(lease, str | int):
            raise BadValue("rule.lease", lease, LEASE_REMEDY)
        if count_refused is not None:
            flag("rule.count_refused", count_refused)
        self.local_share: float | None = local_share
        self.lease: str | int | None = lease
        self.mode = term(Mode, "rule.mode", mode)
        self.count_refused: bool | None = count_refused

    def _fields(self) -> tuple[object, ...]:
        return (
            self.limits,
            self.algorithm,
            self.failure,
            self.local_share,
            self.lease,
            self.mode,
            self.count_refused,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        terms = [
            f"{name}={value.value if isinstance(value, Enum) else value!r}"
            for name in ("algorithm", "failure", "local_share", "lease", "mode", "count_refused")
            if (value := getattr(self, name)) is not None
        ]
        return f"Rule({', '.join([*map(repr, self.limits), *terms])})"


def _limits(limits: Given[str | Limit | Sequence[str | Limit]]) -> tuple[str | Limit, ...]:
    if isinstance(limits, str | Limit):
        return (limits,)
    if not isinstance(limits, Sequence):
        raise BadValue("rule.limits", limits, LIMITS_REMEDY)
    if not limits or not all(isinstance(one, str | Limit) for one in limits):
        raise BadValue("rule.limits", limits, LIMITS_REMEDY)
    return tuple(limits)


def term(kind: type[Term], field: str, value: Given[str | Term]) -> Term:
    """Return the member of `kind` that `value` names, or an error that lists them all."""
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(member.value for member in kind)
        raise BadValue(field, value, f"give one of {names}") from None
