"""Origin slots: downloads in flight from one host and from all hosts, and the queues for them.

A download takes a slot of its host, then one of the pool. Where none is free it waits until its
deadline, in the order of `policies/admission/gate.py`: a page requests all its pictures at once.

Bounds: for each host `GateSettings.length_max` and `bytes_max`, where each waiting download counts
with its URL; the least critical is rejected first. A host has a queue only while it has a download,
and each download has a request that waits for it (`WAITERS_MAX`).
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import Gate, GatePermit
from sluicegate.policies.admission.settings import GateSettings


@final
class OriginSlot:
    """One download in flight, of its host and of all."""

    __slots__ = ("_permits", "_shard", "_slots")

    def __init__(self, slots: OriginSlots, shard: str, *permits: GatePermit) -> None:
        self._slots = slots
        self._shard = shard
        self._permits = permits

    def end(self, outcome: Outcome, now_us: int) -> None:
        """Give both slots to the next."""
        for permit in self._permits:
            permit.end(outcome, now_us)
        self._slots.forget(self._shard)


@final
class OriginSlots:
    """The queues of all hosts. For one event loop."""

    def __init__(self, per_host: int, downloads_max: int, clock: Clock) -> None:
        self._per_host = min(per_host, downloads_max)
        self._clock = clock
        self._pool = _gate("origins", downloads_max)
        self._hosts: dict[str, Gate] = {}

    @property
    def waiting(self) -> int:
        """How many downloads wait."""
        return self._pool.queued + sum(gate.queued for gate in self._hosts.values())

    async def enter(self, shard: str, request: Request) -> OriginSlot:
        """Wait for a slot of this host; raise `Refused` if there is none in time."""
        gate = self._hosts.get(shard)
        if gate is None:
            gate = self._hosts[shard] = _gate("origin", self._per_host)
        try:
            own = await _admitted(gate, request, self._clock)
            try:
                return OriginSlot(
                    self, shard, own, await _admitted(self._pool, request, self._clock)
                )
            except BaseException:
                own.end(Outcome.IGNORE, self._clock.now_us(), spent=False)
                raise
        except BaseException:
            self.forget(shard)
            raise

    def requeue(self, request: Request, now_us: int) -> None:
        """Move a waiting download to the class that its request has now."""
        for gate in (self._pool, *self._hosts.values()):
            if gate.queued and gate.requeue(request, now_us):
                return

    def forget(self, shard: str) -> None:
        """Drop the queue of a host that has no download."""
        gate = self._hosts.get(shard)
        if gate is not None and not gate.inflight and not gate.queued:
            del self._hosts[shard]


async def _admitted(gate: Gate, request: Request, clock: Clock) -> GatePermit:
    permit = await gate.admit(request, clock)
    if isinstance(permit, Decision):
        raise Refused(permit)
    return permit


def _gate(name: str, slots: int) -> Gate:
    return Gate(
        GateSettings(name=name, slots=slots),
        size_bytes=lambda request: len(request.key),
        resource_of=lambda request: "",
    )
