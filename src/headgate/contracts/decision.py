"""Decision: the answer to one unit of work.

It is a plain value: what was decided, what is left, when to come back, and by which rule. Distances
in time are whole microseconds; the `_s` forms are for people and headers. A refusal that no waiting
will turn has the `retry_after_us` of `kernels.verdict.NEVER`.
"""

from __future__ import annotations

from typing import final

from headgate.contracts.reasons import Reason
from headgate.kernels.native import mypyc_attr


# A decision holds nothing that could hold it, and most live for one statement.
@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Decision:
    """Allowed or refused; a refusal always has a reason. True in a condition if allowed."""

    __slots__ = ("allowed", "reason", "remaining", "reset_after_us", "retry_after_us", "rule_id")

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

    def _fields(self) -> tuple[bool, int, int, int, str, str]:
        reason = "" if self.reason is None else self.reason.name
        return (
            self.allowed,
            self.remaining,
            self.retry_after_us,
            self.reset_after_us,
            reason,
            self.rule_id,
        )

    def __reduce__(self) -> tuple[type[Decision], tuple[bool, int, int, int, Reason | None, str]]:
        return Decision, (
            self.allowed,
            self.remaining,
            self.retry_after_us,
            self.reset_after_us,
            self.reason,
            self.rule_id,
        )
