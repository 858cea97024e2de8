"""Refusal ring: recent refusals of a dispatcher, with the numbers that they were decided on.

Kept to show a caller's owner what it met: the stage and its reason, and as they stood at that
instant the price, what the caller had left, the latency ratio, the limit of the shard and the
queue delay. What repeats
itself within a second (the same caller, class, operation, shard, stage and reason) is one entry
with a count; its numbers are those of the first. So a caller that hammers costs a look-up for each
refusal, and does not wash away the others.

A refusal that the dispatcher itself mends, since more of the quota was on its way, is not one.
Bound: `entries_max`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.chain import PolicyChain
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.request import Request
from sluicegate.policies.quota.leased_budget import BudgetStanding

TOGETHER_US: Final = 1_000_000
CACHED: Final = "cached"  # the operation of a read that would have been answered from memory


class KeptRefusal(NamedTuple):
    """One refusal, or several alike within a second."""

    first_us: int
    last_us: int
    times: int
    entity: str
    stage: str
    reason: str
    operation: str
    table: str
    shard: str
    priority: str
    cost_mru: int
    price_milli: int  # of the class
    balance_mru: int | None  # None: its group has it
    quota_mru: int | None  # of an epoch
    ratio: float | None  # of the slowest operation; None: too little is known
    limit: int  # of requests in flight on the shard; 0: no limit
    limit_origin: str  # "set", "found" or "none yet"
    queue_us: int
    stress: tuple[str, ...]
    retry_after_us: int


@final
class _Entry:
    """An entry that counts; the rest of it stays."""

    __slots__ = ("first", "last_us", "times")

    def __init__(self, first: KeptRefusal) -> None:
        self.first = first
        self.last_us = first.last_us
        self.times = 1


@final
class RefusalRing:
    """The last refusals."""

    __slots__ = ("_chain", "_entries", "_open", "_standing")

    def __init__(
        self,
        chain: PolicyChain,
        standing: Callable[[str, int], BudgetStanding | None],
        *,
        entries_max: int,
    ) -> None:
        self._chain = chain
        self._standing = standing
        self._entries: deque[_Entry] = deque(maxlen=entries_max)
        self._open: dict[tuple[str, ...], _Entry] = {}

    def resize(self, entries_max: int) -> None:
        """Keep so many from now on; the newest stay."""
        if entries_max != self._entries.maxlen:
            self._entries = deque(self._entries, maxlen=entries_max)

    def record(self, request: Request, decision: Decision, now_us: int) -> None:
        """Keep one refusal."""
        stage = decision.rule_id.partition(":")[0]
        reason = "" if decision.reason is None else decision.reason.name
        priority = request.criticality.name
        kind = (request.caller, stage, reason, priority, request.operation, request.shard)
        entry = self._open.get(kind)
        if entry is not None and 0 <= now_us - entry.first.first_us < TOGETHER_US:
            entry.last_us = now_us
            entry.times += 1
            return
        if len(self._open) >= (self._entries.maxlen or 0):
            self._open.clear()  # what is open goes on as new entries
        pressure = self._chain.pressure(now_us)
        limit, limit_origin = self._chain.limit_of(request.shard)
        standing = self._standing(request.caller, now_us)
        entry = self._open[kind] = _Entry(
            KeptRefusal(
                now_us,
                now_us,
                1,
                request.caller,
                stage,
                reason,
                request.operation,
                request.table,
                request.shard,
                priority,
                request.cost_mru,
                request.price_milli,
                None if standing is None else standing.level_mru,
                None if standing is None else standing.quota_mru,
                pressure.ratio,
                limit,
                limit_origin,
                pressure.queue_us,
                pressure.why,
                decision.retry_after_us,
            )
        )
        self._entries.append(entry)

    def record_cached(
        self, caller: str, member: Criticality, decision: Decision, now_us: int
    ) -> None:
        """Keep the refusal of an answer from memory, which no stage of the chain has seen."""
        request = Request("", caller=caller, criticality=member, operation=CACHED)
        request.cost_mru = self._chain.units.settings.cached_mru
        self.record(request, decision, now_us)

    def find(
        self, entity: str | None, *, since_us: int = 0, count_max: int = 100
    ) -> list[KeptRefusal]:
        """The entries about a caller (None: about any), the newest first."""
        found = [
            entry.first._replace(last_us=entry.last_us, times=entry.times)
            for entry in self._entries
            if entry.last_us >= since_us and entity in (None, entry.first.entity)
        ]
        found.sort(key=lambda entry: -entry.last_us)
        return found[:count_max]

    def __len__(self) -> int:
        return len(self._entries)
