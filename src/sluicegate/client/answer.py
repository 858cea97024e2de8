"""Answer: what a client says of one unit of work, and where it knows that from.

It is true in a condition if the work may enter. `source` says who decided: the service at this
moment, units that it leased to us before, a refusal of its that still stands, or our own failure
policy because it could not be asked; only the last is marked `degraded` by us. Distances are whole
microseconds; the service tells milliseconds, rounded up.
"""

from __future__ import annotations

from typing import Any, Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.reasons import RATE_LIMITED, REASONS, Reason
from sluicegate.kernels.verdict import NEVER

SERVICE: Final = "service"
LEASE: Final = "lease"
DENIAL: Final = "denial"
FAILURE: Final = "failure"

WORDS: Final = 9  # of a reply that are an answer
_MS_US: Final = 1_000


@final
class Answer:
    """The decision that binds, `limit` units of which it was, and how the service itself fares.

    Where no rule applies `rule_id` is empty and `limit` is -1.
    """

    __slots__ = ("decision", "limit", "source", "status")

    def __init__(self, decision: Decision, limit: int, status: str, source: str) -> None:
        self.decision = decision
        self.limit = limit
        self.status = status  # DEGRADED_MODE while what matters less is being shed
        self.source = source

    @property
    def allowed(self) -> bool:
        """Whether the work may enter."""
        return self.decision.allowed

    @property
    def remaining(self) -> int:
        """Units that are left, as far as is known here."""
        return self.decision.remaining

    @property
    def retry_after_us(self) -> int:
        """When to ask again; 0 if at once, negative if never."""
        return self.decision.retry_after_us

    @property
    def retry_after_s(self) -> float | None:
        """The same in seconds; None if never."""
        return self.decision.retry_after_s

    @property
    def reset_after_us(self) -> int:
        """When the limit is whole again."""
        return self.decision.reset_after_us

    @property
    def rule_id(self) -> str:
        """The rule that binds."""
        return self.decision.rule_id

    @property
    def reason(self) -> Reason | None:
        """Why not."""
        return self.decision.reason

    @property
    def degraded(self) -> bool:
        """Whether a failure policy decided, the service's or ours: nobody has counted this."""
        return self.decision.degraded

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        return f"<Answer {self.decision!r} from {self.source}>"


def parse_answer(reply: Any, at: int = 0) -> Answer:
    """Return the nine words of a reply from `at` on."""
    if not isinstance(reply, list) or len(reply) != at + WORDS:
        raise Unavailable("the service", f"its answer is not understood: {reply!r:.80}")
    allowed, remaining, retry_ms, reset_ms, limit, rule_id, name, status, degraded = reply[at:]
    try:
        reason = None
        if not allowed:
            # A newer service may have reasons that this table has not; a refusal it stays.
            reason = REASONS.get(name.decode(), RATE_LIMITED)
        decision = Decision(
            bool(allowed),
            int(remaining),
            int(retry_ms) * _MS_US if retry_ms >= 0 else NEVER,
            int(reset_ms) * _MS_US,
            reason,
            rule_id.decode(),
            bool(degraded),
        )
        return Answer(decision, int(limit), status.decode(), SERVICE)
    except (AttributeError, TypeError, ValueError):
        raise Unavailable("the service", f"its answer is not understood: {reply!r:.80}") from None
