"""Audit ring: recent decisions, kept to show why a user was refused.

Refusals, and what was decided without the store or only tried out, have a ring of their own; what
was plainly admitted has a smaller one. So a flood of admissions never washes a refusal away. What
repeats itself within a second (the same user, rule, priority and outcome) is one entry with a
count, so a client that hammers does not wash away the others either.

It is written on the way of every decision and read by people: writing is a look-up and a few
stores, reading walks both rings. Bounds: `refusals_max` and `admissions_max` entries; an entity of
more than `ENTITY_CHARS_MAX` characters is kept cut.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import SHED

ENTITY_CHARS_MAX: Final = 256
REFUSALS_MAX_DEFAULT: Final = 32_768
ADMISSIONS_MAX_DEFAULT: Final = 8_192
ENTRIES_MAX: Final = 10_000_000
TOGETHER_US: Final = 1_000_000


class AuditedDecision(NamedTuple):
    """One decision, or several alike within a second."""

    first_us: int
    last_us: int
    times: int
    entity: str
    rule_id: str
    weight: int  # of all of them
    priority: str
    allowed: bool
    reason: str
    signal: str  # what overload the service suffered, where that is the reason
    remaining: int  # as the counters stood at the last
    retry_after_us: int
    without_store: bool
    shadow: bool
    overridden: bool


@final
class _Slot:
    """An entry being written: what identifies it stays, the numbers are those of the last one."""

    __slots__ = (
        "allowed",
        "degraded",
        "entity",
        "first_us",
        "home",
        "last_us",
        "overridden",
        "priority",
        "reason",
        "remaining",
        "retry_after_us",
        "rule_id",
        "shadow",
        "signal",
        "times",
        "weight",
    )

    def __init__(
        self,
        home: dict[str, _Slot],
        entity: str,
        rule_id: str,
        priority: Criticality,
        decision: Decision,
        at_us: int,
    ) -> None:
        self.home = home
        self.entity = entity
        self.rule_id = rule_id
        self.allowed = decision.allowed
        self.reason = "" if decision.reason is None else decision.reason.name
        self.degraded = decision.degraded
        self.shadow = decision.shadow
        self.overridden = decision.overridden
        self.priority = priority
        self.signal = ""
        self.remaining = 0
        self.retry_after_us = 0
        self.first_us = at_us
        self.last_us = at_us
        self.times = 0
        self.weight = 0

    def entry(self) -> AuditedDecision:
        return AuditedDecision(
            self.first_us,
            self.last_us,
            self.times,
            self.entity,
            self.rule_id,
            self.weight,
            self.priority.name,
            self.allowed,
            self.reason,
            self.signal,
            self.remaining,
            self.retry_after_us,
            self.degraded,
            self.shadow,
            self.overridden,
        )


@final
class _Ring:
    """The last `size` slots, and the open ones: by priority, by rule and outcome, by entity."""

    __slots__ = ("_at", "_open", "_size", "_slots")

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: list[_Slot] = []
        self._at = 0
        self._open: list[dict[str, dict[str, _Slot]]] = [{} for _ in Criticality]

    def record(
        self,
        kind: str,
        entity: str,
        rule_id: str,
        weight: int,
        priority: Criticality,
        decision: Decision,
        at_us: int,
    ) -> None:
        homes = self._open[priority]
        home = homes.get(kind)
        if home is None:
            if len(homes) >= self._size:
                homes.clear()  # what is open goes on as new entries
            home = homes[kind] = {}
        slot = home.get(entity)
        if slot is None or at_us - slot.first_us >= TOGETHER_US or at_us < slot.first_us:
            slot = _Slot(home, entity, rule_id, priority, decision, at_us)
            home[entity] = slot
            self._put(slot)
        slot.remaining = decision.remaining
        if decision.reason is SHED:
            slot.signal = decision.rule_id.partition(":")[2]
        slot.retry_after_us = decision.retry_after_us
        slot.last_us = at_us
        slot.times += 1
        slot.weight += weight

    def _put(self, slot: _Slot) -> None:
        if len(self._slots) < self._size:
            self._slots.append(slot)
            return
        oldest = self._slots[self._at]
        if oldest.home.get(oldest.entity) is oldest:
            del oldest.home[oldest.entity]
        self._slots[self._at] = slot
        self._at = (self._at + 1) % self._size

    def find(self, entity: str | None, since_us: int) -> list[AuditedDecision]:
        return [
            slot.entry()
            for slot in self._slots
            if slot.last_us >= since_us and (entity is None or slot.entity == entity)
        ]

    def __len__(self) -> int:
        return len(self._slots)


@final
class AuditRing:
    """The recent decisions."""

    __slots__ = ("_admissions", "_refusals")

    def __init__(
        self,
        *,
        refusals_max: int = REFUSALS_MAX_DEFAULT,
        admissions_max: int = ADMISSIONS_MAX_DEFAULT,
    ) -> None:
        for field, value in (("refusals_max", refusals_max), ("admissions_max", admissions_max)):
            if not 1 <= value <= ENTRIES_MAX:
                raise BadValue(f"audit.{field}", value, f"give a number from 1 to {ENTRIES_MAX:,}")
        self._refusals = _Ring(refusals_max)
        self._admissions = _Ring(admissions_max)

    def record(
        self,
        entity: str,
        rule_id: str,
        weight: int,
        priority: Criticality,
        decision: Decision,
        at_us: int,
    ) -> None:
        """Keep one decision."""
        if len(entity) > ENTITY_CHARS_MAX:
            entity = entity[:ENTITY_CHARS_MAX]
        reason = decision.reason
        if reason is None and not decision.degraded and not decision.overridden:
            self._admissions.record(rule_id, entity, rule_id, weight, priority, decision, at_us)
            return
        marks = decision.degraded * 4 + decision.shadow * 2 + decision.overridden
        kind = f"{rule_id}\x1f{'' if reason is None else reason.name}\x1f{marks}"
        self._refusals.record(kind, entity, rule_id, weight, priority, decision, at_us)

    def find(
        self, entity: str | None, *, since_us: int = 0, count_max: int = 100
    ) -> list[AuditedDecision]:
        """The entries about an entity (None: about any), the newest first."""
        if entity is not None:
            entity = entity[:ENTITY_CHARS_MAX]
        entries = self._refusals.find(entity, since_us) + self._admissions.find(entity, since_us)
        entries.sort(key=_last_us, reverse=True)
        return entries[:count_max]

    def __len__(self) -> int:
        return len(self._refusals) + len(self._admissions)


def _last_us(entry: AuditedDecision) -> int:
    return entry.last_us
