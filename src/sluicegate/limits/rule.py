"""Rule: limits, and the terms on which they are kept.

A rate string is the shortest rule. This is the long form, for what a rate cannot say: what happens
when the store does not answer, whether a share may be spent locally, whether it is enforced at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias, TypeVar, final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit

# As `Limiter` takes it: the name of a rule or a rate string, a limit, or a whole rule.
RuleLike: TypeAlias = "str | Limit | Rule"


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
        limits: str | Limit | Sequence[str | Limit],
        *,
        algorithm: str | Algorithm | None = None,
        failure: str | Failure | None = None,
        local_share: float | None = None,
        lease: str | int | None = None,
        mode: str | Mode = Mode.ENFORCE,
        count_refused: bool | None = None,
    ) -> None:
        self.limits = (limits,) if isinstance(limits, str | Limit) else tuple(limits)
        if not self.limits:
            raise BadValue("rule.limits", limits, 'give at least one, as "100/minute"')
        self.algorithm = None if algorithm is None else term(Algorithm, "rule.algorithm", algorithm)
        self.failure = None if failure is None else term(Failure, "rule.failure", failure)
        if local_share is not None and not 0 < local_share <= 1:
            raise BadValue("rule.local_share", local_share, "give a share above 0 and up to 1")
        self.local_share = local_share
        self.lease = lease
        self.mode = term(Mode, "rule.mode", mode)
        self.count_refused = count_refused

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


def term(kind: type[Term], field: str, value: str | Term) -> Term:
    """Return the member of `kind` that `value` names, or an error that lists them all."""
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(member.value for member in kind)
        raise BadValue(field, value, f"give one of {names}") from None
