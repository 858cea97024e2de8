"""Decision: the result of asking a limit about one unit of work.

It is a value: what was decided, what is left, when to come back, and by which rule. Nobody changes
it; whoever knows more makes another. Distances in time are whole microseconds; the `_s` forms are
for people and headers. A refusal that waiting cannot change has the `retry_after_us`
of `kernels.verdict.NEVER` and no `retry_after_s`.

Three marks say that it did not come about as usual. `degraded`: the limit's store could not be
asked, and the rule's failure policy decided. `shadow`: the rule is only tried out; `reason` says
why it would have refused, and yet `allowed` is true. `overridden`: somebody has stopped enforcement
for now (break-glass), and nothing was asked or counted.

Two more describe it, and are no part of what makes two decisions equal: `limit` is how many units
could be had at once (0 where no number decided), and `cause` says what was wrong with the store.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.reasons import Reason
from sluicegate.kernels.native import mypyc_attr


# A decision holds nothing that could hold it, and most live for one statement.
@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Decision:
    """Allowed or refused; a refusal always has a reason. True in a condition if allowed."""

    __slots__ = (
        "allowed",
        "cause",
        "degraded",
        "limit",
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
        degraded: bool = False,
        shadow: bool = False,
        overridden: bool = False,
        limit: int = 0,
        cause: str = "",
    ) -> None:
        self.allowed: Final = allowed
        self.remaining: Final = remaining
        self.retry_after_us: Final = retry_after_us
        self.reset_after_us: Final = reset_after_us
        self.reason: Final = reason
        self.rule_id: Final = rule_id
        self.degraded: Final = degraded
        self.shadow: Final = shadow
        self.overridden: Final = overridden
        self.limit: Final = limit
        self.cause: Final = cause

    def with_marks(
        self,
        *,
        degraded: bool = False,
        shadow: bool = False,
        overridden: bool = False,
        cause: str = "",
    ) -> Decision:
        """Return this decision with these marks added, and what was wrong if that is said."""
        degraded = degraded or self.degraded
        shadow = shadow or self.shadow
        overridden = overridden or self.overridden
        cause = cause or self.cause
        if (
            degraded == self.degraded
            and shadow == self.shadow
            and overridden == self.overridden
            and cause == self.cause
        ):
            return self
        return Decision(
            self.allowed,
            self.remaining,
            self.retry_after_us,
            self.reset_after_us,
            self.reason,
            self.rule_id,
            degraded,
            shadow,
            overridden,
            self.limit,
            cause,
        )

    def with_more(self, units: int) -> Decision:
        """Return this decision with so many more units remaining."""
        return Decision(
            self.allowed,
            self.remaining + units,
            self.retry_after_us,
            self.reset_after_us,
            self.reason,
            self.rule_id,
            self.degraded,
            self.shadow,
            self.overridden,
            self.limit,
            self.cause,
        )

    def with_rule(self, rule_id: str) -> Decision:
        """Return this decision under another rule's id."""
        return Decision(
            self.allowed,
            self.remaining,
            self.retry_after_us,
            self.reset_after_us,
            self.reason,
            rule_id,
            self.degraded,
            self.shadow,
            self.overridden,
            self.limit,
            self.cause,
        )

    def explain(self) -> str:
        """Return why, in a sentence or two."""
        rule = f"rule {self.rule_id!r}"
        if self.overridden:
            return f"Allowed, because enforcement of {rule} is stopped for now (break-glass)."
        if self.allowed:
            text = f"Allowed by {rule}, {self.remaining:,} remaining."
            if self.shadow and self.reason is not None:
                text = f"Allowed, because {rule} is only tried out; else: {self.reason.sentence}"
        else:
            text = f"Refused by {rule}."
            if self.reason is not None:
                text += f" {self.reason.sentence}"
            if self.retry_after_us < 0:
                text += " Asking again will not help."
            elif self.retry_after_us > 0:
                text += f" Ask again in {self.retry_after_us / 1_000_000:,.6g} s."
        if self.degraded:
            text += " The limit's store could not be asked; the rule's failure policy decided."
            if self.cause:
                text += f" {self.cause[0].upper()}{self.cause[1:]}."
        return text

    def to_json(self) -> dict[str, object]:
        """Return the decision as JSON's own values, for logs and answers."""
        return {
            "allowed": self.allowed,
            "rule": self.rule_id,
            "reason": None if self.reason is None else self.reason.name,
            "limit": self.limit,
            "remaining": self.remaining,
            "retry_after_s": self.retry_after_s,
            "reset_after_s": self.reset_after_s,
            "degraded": self.degraded,
            "shadow": self.shadow,
            "overridden": self.overridden,
            "cause": self.cause,
        }

    @property
    def retry_after_s(self) -> float | None:
        """Return the seconds until a retry can be admitted; None if none ever will be."""
        return self.retry_after_us / 1_000_000 if self.retry_after_us >= 0 else None

    @property
    def reset_after_s(self) -> float:
        """Return the seconds until the limit is whole again."""
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
        retry = "no retry" if self.retry_after_us < 0 else f"retry after {self.retry_after_us} us"
        return f"<Decision {name} by {self.rule_id!r}, {retry}>"

    def _fields(self) -> tuple[bool, int, int, int, Reason | None, str, bool, bool, bool]:
        return (
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

    def __reduce__(self) -> tuple[type[Decision], tuple[object, ...]]:
        return Decision, (*self._fields(), self.limit, self.cause)
