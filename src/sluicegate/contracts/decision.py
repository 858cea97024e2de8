"""Decision: the answer to one unit of work.

It is a plain value: what was decided, what is left, when to come back, and by which rule. Distances
in time are whole microseconds; the `_s` forms are for people and headers. A refusal that no waiting
will turn has the `retry_after_us` of `kernels.verdict.NEVER`.

Three marks say that it did not come about as usual. `degraded`: the limit's store could not be
asked, and the rule's failure policy decided. `shadow`: the rule is only tried out; `reason` says
what it would have refused, and yet `allowed` is true. `overridden`: somebody has stopped
enforcement for now (break-glass), and nothing was asked or counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sluicegate.contracts.reasons import Reason
from sluicegate.kernels.native import mypyc_attr


# A decision holds nothing that could hold it, and most live for one statement.
@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Decision:
    """Allowed or refused; a refusal always has a reason. True in a condition if allowed."""

    __slots__ = (
        "allowed",
        "degraded",
        "overridden",
        "reason",
        "remaining",
        "reset_after_us",
        "retry_after_us",
        "rule_id",
        "shadow",
    )

    def __init__(
        self,
        allowed: bool,
        remaining: int,
        retry_after_us: int,
        reset_after_us: int,
        reason: Reason | None,
        rule_id: str,
    ) -> None:
        self.allowed = allowed
        self.remaining = remaining
        self.retry_after_us = retry_after_us
        self.reset_after_us = reset_after_us
        self.reason = reason
        self.rule_id = rule_id
        self.degraded = False
        self.shadow = False
        self.overridden = False

    def marked(
        self, *, degraded: bool = False, shadow: bool = False, overridden: bool = False
    ) -> Decision:
        """This decision, with these marks added; whoever makes a decision marks it, nobody else."""
        self.degraded = self.degraded or degraded
        self.shadow = self.shadow or shadow
        self.overridden = self.overridden or overridden
        return self

    def explain(self) -> str:
        """Why, in a sentence or two."""
        rule = f"rule {self.rule_id!r}"
        if self.overridden:
            return f"Allowed, because enforcement of {rule} is stopped for now (break-glass)."
        if self.allowed:
            said = f"Allowed by {rule}, {self.remaining:,} remaining."
            if self.shadow and self.reason is not None:
                said = f"Allowed, because {rule} is only tried out; else: {self.reason.sentence}"
        else:
            said = f"Refused by {rule}."
            if self.reason is not None:
                said += f" {self.reason.sentence}"
            if self.retry_after_us < 0:
                said += " Asking again will not help."
            elif self.retry_after_us > 0:
                said += f" Ask again in {self.retry_after_s:,.6g} s."
        if self.degraded:
            said += " The limit's store could not be asked; the rule's failure policy decided."
        return said

    @property
    def retry_after_s(self) -> float:
        """Seconds until a retry is admitted if nothing else comes; negative if none ever will."""
        return self.retry_after_us / 1_000_000

    @property
    def reset_after_s(self) -> float:
        """Seconds until the limit is whole again."""
        return self.reset_after_us / 1_000_000

    def __bool__(self) -> bool:
        return self.allowed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        if self.allowed:
            return f"<Decision allowed by {self.rule_id!r}, {self.remaining} remaining>"
        name = "refused" if self.reason is None else self.reason.name
        return f"<Decision {name} by {self.rule_id!r}, retry after {self.retry_after_us} us>"

    def _fields(self) -> tuple[bool, int, int, int, str, str, bool, bool, bool]:
        reason = "" if self.reason is None else self.reason.name
        return (
            self.allowed,
            self.remaining,
            self.retry_after_us,
            self.reset_after_us,
            reason,
            self.rule_id,
            self.degraded,
            self.shadow,
            self.overridden,
        )

    def __reduce__(self) -> tuple[Callable[..., Decision], tuple[object, ...]]:
        return _remade, (
            self.allowed,
            self.remaining,
            self.retry_after_us,
            self.reset_after_us,
            self.reason,
            self.rule_id,
            self.degraded,
            self.shadow,
            self.overridden,
        )


def _remade(
    allowed: bool,
    remaining: int,
    retry_after_us: int,
    reset_after_us: int,
    reason: Reason | None,
    rule_id: str,
    degraded: bool,
    shadow: bool,
    overridden: bool,
) -> Decision:
    decision = Decision(allowed, remaining, retry_after_us, reset_after_us, reason, rule_id)
    return decision.marked(degraded=degraded, shadow=shadow, overridden=overridden)
