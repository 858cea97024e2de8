"""Client failure policy: the answer when the service cannot be asked; each such answer is marked.

`open` admits, for a limiter that is away must not take its users down. `closed` refuses. `local`
counts here, each pair by a limit that this client was given: the service's own rules are not known
here, so whoever wants it says what one process may admit by itself.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.client.answer import FAILURE, Answer
from sluicegate.client.pair import Pair
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import STORE_UNAVAILABLE
from sluicegate.contracts.rule import Limit
from sluicegate.stores.memory.table import LocalKeys
from sluicegate.stores.memory.tables import table_for

OPEN: Final = "open"
CLOSED: Final = "closed"
LOCAL: Final = "local"
FAILURES: Final = (OPEN, CLOSED, LOCAL)
LOCAL_KEYS_MAX: Final = 100_000
_NO_LIMIT: Final = -1


@final
class ClientFailurePolicy:
    """One policy for all requests of a client."""

    __slots__ = ("_clock", "_limit", "_table", "failure")

    def __init__(self, failure: str, local_limit: Limit | None, clock: Clock) -> None:
        if failure not in FAILURES:
            raise BadValue("failure", failure, f"give one of {', '.join(FAILURES)}")
        if failure == LOCAL and local_limit is None:
            raise BadValue(
                "local_limit", None, "say what this process may admit by itself: a Limit"
            )
        if failure != LOCAL and local_limit is not None:
            raise BadValue("local_limit", local_limit, f"leave it out: failure is {failure}")
        self.failure = failure
        self._clock = clock
        self._limit = local_limit
        self._table: LocalKeys | None = None
        if local_limit is not None:
            self._table = table_for(LOCAL, local_limit, LOCAL_KEYS_MAX)

    def answer(self, pair: Pair, cost: int) -> Answer:
        """Return what is decided without the service."""
        limit, table = self._limit, self._table
        if limit is None or table is None:
            reason = STORE_UNAVAILABLE if self.failure == CLOSED else None
            decision = Decision(reason is None, 0, 0, 0, reason, "", degraded=True)
            return Answer(decision, _NO_LIMIT, "", FAILURE)
        decision = table.take(repr(pair), cost, self._clock.now_us())
        return Answer(decision.with_marks(degraded=True), limit.burst, "", FAILURE)
