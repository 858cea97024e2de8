"""Bulkhead: one slow part fills its own compartment, and the ship stays afloat.

Judges one unit by how many are at work in the part of the service that it needs (`request.shard`: a
shard, a host, a dependency). Source: the pattern of Nygard, "Release It!" (2007). With one pool of
200 and one shard of ten fifty times slower, the pool fills with what waits for that shard and the
nine healthy ones answer 8% of what they are asked; with 40 places a shard they answer 99.96%.

    cap         what one part may have: `caps[shard]`, else `cap`; or found (`adaptive`, by the
                same number as `concurrency`, one a shard, between 1 and its cap)
    pool        what all parts may have together. Caps may add up to more: not all are slow at once

With a pool, a part that has as many as its cap is refused first, so that a slow one never takes
more of the pool than its cap. Keep `cap` well below `pool`.

**Classes.** A part that is full again and again keeps places for the higher classes, as many as
they need there (`class_reserve.py`); `classes=False` serves whoever asks first. So does a part
that may have the whole pool: who enters that is for the queue in front of it to say.

**Fewer places.** `resize` says how many all parts have together now; each cap is the same share of
them as of the pool, so that a slow part has no larger share of few places than of many.

**Resharding.** `reshard` names the parts and their caps anew. What is at work goes on to count
where it was admitted: a part that stays keeps its count, one that went keeps it until its last unit
has ended, and one that comes back meanwhile finds it. A lower cap sends nobody away.

Shards that are not named have a compartment while anybody is in them; more than `shards_max` at
once share one. A fixed cap remembers nothing else. An adaptive one keeps the numbers of idle
shards, and forgets the one that has been idle longest when it needs its room.

Cost: a look-up and six additions. Bounds: `pool`, `shards_max`; each compartment its cap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import BasePolicy
from sluicegate.contracts.reasons import BULKHEAD_FULL
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.class_reserve import ClassReserve
from sluicegate.policies.concurrency import AdaptiveLimit, AdaptiveSettings
from sluicegate.policies.settings import check_ranges, within

CAP_MAX: Final = 1 << 20
SHARDS_MAX: Final = 1 << 20
NO_CAPS: Final[Mapping[str, int]] = {}
_OVERFLOW: Final = ""
_RETRY_US_MIN: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkheadSettings:
    """What each part may have, and all of them together."""

    name: str = "bulkhead"
    cap: int = 40
    caps: Mapping[str, int] = field(default_factory=lambda: NO_CAPS)
    pool: int = ranged(200, 1, CAP_MAX)
    adaptive: AdaptiveSettings | None = None  # its limit_max is held to the cap
    shards_max: int = ranged(1_024, 1, SHARDS_MAX)
    classes: bool = True

    def __post_init__(self) -> None:
        check_ranges("bulkhead", self)
        within("bulkhead.cap", self.cap, 1, self.pool)
        _check_caps(self.caps, self.pool, self.shards_max)


class BulkheadStats(NamedTuple):
    """Levels now, counts since the beginning."""

    inflight: int
    shards: int  # that are tracked
    full: int  # of them, that are at their cap
    admitted: int
    refused: int  # because the part was full, or its places kept for higher classes
    refused_pool: int  # because all of them were


@final
class Compartment:
    """What is at work in one part."""

    __slots__ = ("cap", "inflight", "number", "reserve", "service_us", "shard")

    def __init__(
        self, shard: str, cap: int, number: AdaptiveLimit | None, reserve: ClassReserve | None
    ) -> None:
        self.shard = shard
        self.cap = cap
        self.number = number
        self.reserve = reserve
        self.inflight = 0
        self.service_us = 0

    def limit(self) -> int:
        """How many it may have now."""
        if self.number is None or self.number.limit > self.cap:
            return self.cap
        return self.number.limit

    def has_room(self, criticality: Criticality, now_us: int) -> bool:
        """Whether one of this class may enter."""
        limit = self.limit()
        reserve = self.reserve
        if reserve is None:
            return self.inflight < limit
        reserve.ask(criticality, now_us)
        if self.inflight < reserve.limit(criticality, limit):
            return True
        reserve.record_refusal(now_us)
        return False


@final
class BulkheadPermit(BasePermit):
    """One unit at work in one part."""

    __slots__ = ("_begun_us", "_bulkhead", "_compartment", "_criticality", "_open", "_request")

    def __init__(
        self, bulkhead: Bulkhead, compartment: Compartment, request: Request, begun_us: int
    ) -> None:
        self._bulkhead = bulkhead
        self._compartment = compartment
        self._request = request
        self._begun_us = begun_us
        self._criticality = request.criticality  # a flight's may be raised while it is at work
        self._open = True

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Leave the compartment that was entered, whatever has been resharded meanwhile."""
        if not self._open:
            return False
        self._open = False
        compartment = self._compartment
        inflight = compartment.inflight
        if spent and outcome is not Outcome.IGNORE:
            self._learn(compartment, outcome, inflight, now_us)
        compartment.inflight = inflight - 1
        if compartment.reserve is not None:
            compartment.reserve.leave(self._criticality)
        self._bulkhead.release(compartment)
        return True

    def _learn(
        self, compartment: Compartment, outcome: Outcome, inflight: int, now_us: int
    ) -> None:
        took_us = now_us - self._begun_us
        measured = self._request.measured
        if measured is not None and measured.from_cache:
            return
        if took_us > 0:
            compartment.service_us += (took_us - compartment.service_us) // 8
        if compartment.number is not None:
            chance = self._bulkhead.chance
            dropped = outcome is Outcome.DROPPED
            compartment.number.learn(took_us, inflight, dropped, now_us, chance)


@final
class Bulkhead(BasePolicy):
    """The compartments."""

    __slots__ = (
        "_admitted",
        "_caps",
        "_compartments",
        "_idle",
        "_refused",
        "_refused_pool",
        "chance",
        "inflight",
        "pool",
        "settings",
    )

    def __init__(self, settings: BulkheadSettings, chance: Chance) -> None:
        self.settings = settings
        self.chance = chance
        self._caps = dict(settings.caps)
        self.pool = settings.pool
        self._compartments: dict[str, Compartment] = {}
        # Those with a number worth keeping and nobody in them, the longest idle first.
        self._idle: OrderedDict[str, Compartment] = OrderedDict()
        self.inflight = 0
        self._admitted = self._refused = self._refused_pool = 0

    def admit(self, request: Request, now_us: int) -> BulkheadPermit | Decision:
        """Return a place in the part that the request needs, or a refusal."""
        compartment = self._compartments.get(request.shard)
        if compartment is None:
            compartment = self._open(request.shard, now_us)
        if not compartment.has_room(request.criticality, now_us):
            self._refused += 1
            return self._refuse(compartment)
        if self.inflight >= self.pool:
            self._refused_pool += 1
            refusal = self._refuse(compartment)
            self._close(compartment)
            return refusal
        if compartment.inflight == 0 and self._idle:
            self._idle.pop(compartment.shard, None)
        compartment.inflight += 1
        if compartment.reserve is not None:
            compartment.reserve.enter(request.criticality)
        self.inflight += 1
        self._admitted += 1
        return BulkheadPermit(self, compartment, request, now_us)

    def resize(self, pool: int) -> None:
        """Have so many places in all parts together from now on; each part keeps its share."""
        within("bulkhead.pool", pool, 1, CAP_MAX)
        self.pool = pool
        for shard, compartment in self._compartments.items():
            compartment.cap = self._cap(shard)

    def reshard(self, caps: Mapping[str, int]) -> None:
        """Name the parts and their caps anew; what is at work counts where it is."""
        _check_caps(caps, self.settings.pool, self.settings.shards_max)
        self._caps = dict(caps)
        for shard, compartment in list(self._compartments.items()):
            compartment.cap = self._cap(shard)
            if compartment.inflight == 0 and shard not in caps:
                del self._compartments[shard]
                self._idle.pop(shard, None)

    def release(self, compartment: Compartment) -> None:
        """Free a place; called by a permit."""
        self.inflight -= 1
        self._close(compartment)

    def limit(self, shard: str) -> int:
        """How many this part may have now."""
        compartment = self._compartments.get(shard)
        if compartment is not None:
            return compartment.limit()
        adaptive = self.settings.adaptive
        cap = self._cap(shard)
        return cap if adaptive is None else min(cap, adaptive.initial)

    def at_work(self, shard: str) -> int:
        """How many it has."""
        compartment = self._compartments.get(shard)
        return 0 if compartment is None else compartment.inflight

    def stats(self) -> BulkheadStats:
        """What it looks like now; looks at all compartments."""
        full = 0
        for compartment in self._compartments.values():
            full += compartment.inflight >= compartment.limit()
        return BulkheadStats(
            self.inflight,
            len(self._compartments),
            full,
            self._admitted,
            self._refused,
            self._refused_pool,
        )

    def _cap(self, shard: str) -> int:
        cap = self._caps.get(shard, self.settings.cap)
        return max(1, cap * self.pool // self.settings.pool)

    def _open(self, shard: str, now_us: int) -> Compartment:
        """A compartment for a shard that has none; when there are too many, the one for all."""
        # The one for all is beside them, and is not forgotten to make room for one of them.
        own = len(self._compartments) - (_OVERFLOW in self._compartments)
        if shard != _OVERFLOW and own >= self.settings.shards_max:
            if self._idle:
                self._compartments.pop(self._idle.popitem(last=False)[0])
            else:
                shard = _OVERFLOW
                shared = self._compartments.get(shard)
                if shared is not None:
                    return shared
        cap = self._cap(shard)
        adaptive = self.settings.adaptive
        number = None if adaptive is None else AdaptiveLimit(adaptive)
        # A part that may have the whole pool is no part: what is in front of it keeps its order.
        parted = self._caps.get(shard, self.settings.cap) < self.settings.pool
        reserve = ClassReserve(now_us) if self.settings.classes and parted else None
        compartment = Compartment(shard, cap, number, reserve)
        self._compartments[shard] = compartment
        return compartment

    def _close(self, compartment: Compartment) -> None:
        """Forget an empty one, or keep what its number has learned."""
        if compartment.inflight > 0:
            return
        if compartment.number is None:
            self._compartments.pop(compartment.shard, None)
        elif compartment.shard != _OVERFLOW:
            self._idle[compartment.shard] = compartment

    def _refuse(self, compartment: Compartment) -> Decision:
        retry_us = max(_RETRY_US_MIN, compartment.service_us // compartment.limit())
        return Decision(False, 0, retry_us, retry_us, BULKHEAD_FULL, self.settings.name)


def _check_caps(caps: Mapping[str, int], pool: int, shards_max: int) -> None:
    within("bulkhead.caps", len(caps), 0, shards_max)
    for shard, cap in caps.items():
        within(f"bulkhead.caps.{shard}", cap, 1, pool)
