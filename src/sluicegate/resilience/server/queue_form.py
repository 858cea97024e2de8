"""Queue form: the queue of a published system in place of the gate's own.

`form = "facebook"` selects CoDel with two timeouts, adaptive LIFO and a watermark
(`policies/forms/facebook`). The form decides who waits, for how long and in which order; the gate
then has a free slot for each request that the form admits, and counts it.

Bounds: those of the form's queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import Gate, GatePermit, GateStats
from sluicegate.policies.forms.facebook import FacebookForm, FacebookSettings
from sluicegate.policies.forms.pool import PoolPermit
from sluicegate.resilience.settings import Resilience

_BYTES_MIN: Final = 4_096  # of the form's queue


@final
class QueueForm:
    """Facebook's queue and watermark in front of a gate that has as many slots."""

    __slots__ = ("_form", "_gate", "_held")

    def __init__(
        self, settings: Resilience, gate: Gate, size_bytes: Callable[[Request], int]
    ) -> None:
        self._form = FacebookForm(
            FacebookSettings(
                slots=settings.slots,
                length_max=settings.queue_length,
                bytes_max=max(settings.queue_bytes, _BYTES_MIN),
            ),
            size_bytes,
        )
        self._gate = gate
        self._held: dict[GatePermit, PoolPermit] = {}  # one for each request in flight

    def try_admit(self, request: Request, now_us: int) -> GatePermit | Decision | None:
        """Return a slot or a refusal; None if the request has to wait."""
        refused = self._form.watermark.admit(request, now_us)
        if isinstance(refused, Decision):
            return refused
        queue = self._form.queue
        if not queue.ready(request, now_us):
            return None
        return self._start(queue.admit_now(request, now_us), request, now_us)

    async def admit(self, request: Request, clock: Clock) -> GatePermit | Decision:
        """Return a slot when it is this request's turn, or a refusal."""
        found = await self._form.queue.admit(request, clock)
        return found if isinstance(found, Decision) else self._start(found, request, clock.now_us())

    def end(self, permit: GatePermit, outcome: Outcome, now_us: int) -> bool:
        """Give the slot back to the gate, then to the next request; False if it was given back."""
        if not permit.end(outcome, now_us):
            return False
        self._held.pop(permit).end(outcome, now_us)
        return True

    def stats(self, gate: GateStats) -> GateStats:
        """Return the counts of the gate, with those of the queue that is used."""
        queue = self._form.queue
        stats = queue.stats()
        return gate._replace(
            queued=stats.queued,
            queued_bytes=queue.queued_bytes,
            waited=stats.waited,
            hung_up=stats.cancelled,
        )

    def _start(self, held: PoolPermit, request: Request, now_us: int) -> GatePermit | Decision:
        found = self._gate.admit_now(request, now_us)
        if isinstance(found, Decision):  # it cannot finish before its deadline
            held.end(Outcome.IGNORE, now_us)
        else:
            self._held[found] = held
        return found
