"""Concurrency: how many units may be at work at once, found by measuring instead of guessed.

Judges one unit by how many are at work now. Source: Netflix's concurrency-limits (2018) and FAST
TCP; the number is a kernel, this file is the gate in front of it. The default, `fast`
(`kernels/fast_limit.py`), is the one that stays near what is right when capacity is halved and
comes back, and that starts quickly (the lab's `tracking`). Vegas, Gradient2 and Aimd
(`kernels/concurrency_limit.py`) are there by name, and so is `fixed`: Vegas takes seconds for what
`fast` finds in one, Gradient2 drifts upwards under a standing load, and Aimd needs a timeout that
fits the service.

**Partitions** say who may still enter when the whole is full, and nothing before that. A partition
of share s is then good for ceil(limit * s) units of its own. A partition that was enforced always
would strand what the others do not use, and a limit without partitions halves the success of
critical work at twice the load. So the whole may stand above the limit for a while, by no more than
the shares add up to; nobody enters beyond its share until it is below again. `by="criticality"`
knows the four classes by name, `by="caller"` the callers that are named; all others are one
partition, for a share a caller would be a gift to whoever invents names. `partition_of` says it of
partitions that are made elsewhere (`partitions.py`).

What is learned: SUCCESS gives its time, DROPPED means too much, IGNORE and what was unwound mean
nothing. Neither does an answer from a cache, which would make the work look fast.

Cost: a comparison and two additions to admit, a sample to end; the limit is updated once a window.
Bounds: `limit_max`, and at most `limit_max * (1 + sum of shares)` at work; `PARTITIONS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import BasePolicy
from sluicegate.contracts.reasons import CONCURRENCY_LIMITED, OVERLOADED, Reason
from sluicegate.contracts.request import Request
from sluicegate.kernels.aimd import Aimd
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.concurrency_limit import LIMIT_MAX, SPAN_US_MAX, SampleWindow
from sluicegate.kernels.fast_limit import ROUNDS, FastLimit
from sluicegate.kernels.gradient2 import Gradient2
from sluicegate.kernels.vegas import Vegas
from sluicegate.policies.partitions import Partition
from sluicegate.policies.settings import check_ranges, one_of, part_of, within

PARTITIONS_MAX: Final = 1_000
ALGORITHMS: Final = ("fast", "vegas", "gradient2", "aimd", "fixed")
BY: Final = ("criticality", "caller")
NO_SHARES: Final[Mapping[str, float]] = {}
_OTHERS: Final = ""
_RETRY_US_MIN: Final = 1_000


# A kernel that computes the limit.
_Number: TypeAlias = FastLimit | Vegas | Gradient2 | Aimd


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSettings:
    """Which number, where it starts, and between what it stays."""

    algorithm: str = "fast"
    initial: int = 20
    limit_min: int = 1
    limit_max: int = ranged(1_000, 1, LIMIT_MAX)
    window_us: int = ranged(1_000_000, 1, SPAN_US_MAX)
    samples_min: int = ranged(10, 1, LIMIT_MAX)
    timeout_us: int = ranged(5_000_000, 1, SPAN_US_MAX)  # of aimd: what counts as lost

    def __post_init__(self) -> None:
        check_ranges("concurrency", self)
        one_of("concurrency.algorithm", self.algorithm, ALGORITHMS)
        within("concurrency.limit_min", self.limit_min, 1, self.limit_max)
        within("concurrency.initial", self.initial, self.limit_min, self.limit_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySettings:
    """The number, and who may enter when it is reached."""

    name: str = "concurrency"
    adaptive: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    by: str = "criticality"
    shares: Mapping[str, float] = field(default_factory=lambda: NO_SHARES)
    other_share: float = 0.0

    def __post_init__(self) -> None:
        one_of("concurrency.by", self.by, BY)
        within("concurrency.shares", len(self.shares), 0, PARTITIONS_MAX)
        for name, share in [*self.shares.items(), ("other_share", self.other_share)]:
            part_of(f"concurrency.shares.{name}", share, 0.0, 1.0)
        if self.by == "criticality":
            for name in self.shares:
                if name not in Criticality.__members__:
                    raise BadValue(
                        "concurrency.shares", name, f"name {', '.join(Criticality.__members__)}"
                    )


class ConcurrencyStats(NamedTuple):
    """Levels now, counts since the beginning."""

    limit: int
    inflight: int
    admitted: int
    refused: int
    over: int  # admitted by its share while the whole was full
    rtt_us: int  # mean of the last window


@final
class AdaptiveLimit:
    """A number and the window that feeds it; `bulkhead` has one a shard."""

    __slots__ = ("_number", "_window", "limit", "rtt_us")

    def __init__(self, settings: AdaptiveSettings) -> None:
        self._number = _number(settings)
        self._window = SampleWindow(
            window_us=settings.window_us,
            samples_min=settings.samples_min,
            rounds=ROUNDS if settings.algorithm == "fast" else 0,
        )
        self.limit = settings.initial
        self.rtt_us = 0

    def learn(self, rtt_us: int, inflight: int, dropped: bool, now_us: int, chance: Chance) -> None:
        """Take in one unit that ended; `inflight` counts it too."""
        number = self._number
        if number is None:
            if not dropped and rtt_us > 0:
                self.rtt_us += (rtt_us - self.rtt_us) // 8 if self.rtt_us else rtt_us
            return
        sample = self._window.add(rtt_us, inflight, dropped, now_us)
        if sample is not None:
            if sample.rtt_us > 0:
                self.rtt_us = sample.rtt_us
            self.limit = number.update(
                sample.rtt_us, sample.inflight, sample.dropped, chance.draw()
            )

    def retry_us(self) -> int:
        """When a place is likely to be free: the time between two ends."""
        return max(_RETRY_US_MIN, self.rtt_us // self.limit)


@final
class WorkPermit(BasePermit):
    """One unit at work."""

    __slots__ = ("_begun_us", "_gate", "_open", "_partition", "_request")

    def __init__(
        self, gate: Concurrency, partition: Partition, request: Request, begun_us: int
    ) -> None:
        self._gate = gate
        self._partition = partition
        self._request = request
        self._begun_us = begun_us
        self._open = True

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the place back, and record how long it was needed."""
        if not self._open:
            return False
        self._open = False
        gate = self._gate
        inflight = gate.inflight
        gate.inflight = inflight - 1
        self._partition.inflight -= 1
        if spent and outcome is not Outcome.IGNORE:
            measured = self._request.measured
            if measured is None or not measured.from_cache:
                dropped = outcome is Outcome.DROPPED
                gate.number.learn(now_us - self._begun_us, inflight, dropped, now_us, gate.chance)
        return True


@final
class Concurrency(BasePolicy):
    """The gate."""

    __slots__ = (
        "_admitted",
        "_by_caller",
        "_callers",
        "_classes",
        "_over",
        "_partition_of",
        "_refused",
        "chance",
        "inflight",
        "number",
        "settings",
    )

    def __init__(
        self,
        settings: ConcurrencySettings,
        chance: Chance,
        partition_of: Callable[[Request], Partition | None] | None = None,
    ) -> None:
        """What `partition_of` knows of none is of the partition that `settings` says."""
        self.settings = settings
        self.chance = chance
        self._partition_of = partition_of
        self.number = AdaptiveLimit(settings.adaptive)
        self.inflight = 0
        shares = settings.shares
        self._by_caller = settings.by == "caller"
        self._classes = [
            Partition(member.name, shares.get(member.name, settings.other_share))
            for member in Criticality
        ]
        self._callers = {name: Partition(name, share) for name, share in shares.items()}
        self._callers[_OTHERS] = Partition(_OTHERS, settings.other_share)
        self._admitted = self._refused = self._over = 0

    @property
    def limit(self) -> int:
        """How many may be at work, as it is found now."""
        return self.number.limit

    def admit(self, request: Request, now_us: int) -> WorkPermit | Decision:
        """A place, if there is one or if the request's partition has its share to fall back on."""
        named = None if self._partition_of is None else self._partition_of(request)
        if named is not None:
            partition = named
        elif self._by_caller:
            own = self._callers.get(request.caller)
            partition = self._callers[_OTHERS] if own is None else own
        else:
            partition = self._classes[request.criticality]
        limit = self.number.limit
        if self.inflight >= limit:
            if partition.inflight >= partition.limit(limit):
                return self._refuse(partition)
            self._over += 1
        self.inflight += 1
        partition.inflight += 1
        self._admitted += 1
        return WorkPermit(self, partition, request, now_us)

    def _refuse(self, partition: Partition) -> Decision:
        self._refused += 1
        # Who has more than its share has asked for too much; who has no share met a full service.
        greedy = self._by_caller and partition.inflight > 0 and partition.share > 0.0
        reason: Reason = CONCURRENCY_LIMITED if greedy else OVERLOADED
        retry_us = self.number.retry_us()
        return Decision(False, 0, retry_us, retry_us, reason, self.settings.name)

    def stats(self) -> ConcurrencyStats:
        """What it looks like now."""
        return ConcurrencyStats(
            self.number.limit,
            self.inflight,
            self._admitted,
            self._refused,
            self._over,
            self.number.rtt_us,
        )


def _number(settings: AdaptiveSettings) -> _Number | None:
    initial, limit_min, limit_max = settings.initial, settings.limit_min, settings.limit_max
    if settings.algorithm == "fast":
        return FastLimit(initial=initial, limit_min=limit_min, limit_max=limit_max)
    if settings.algorithm == "vegas":
        return Vegas(initial=initial, limit_min=limit_min, limit_max=limit_max)
    if settings.algorithm == "gradient2":
        return Gradient2(initial=initial, limit_min=limit_min, limit_max=limit_max)
    if settings.algorithm == "aimd":
        return Aimd(
            initial=initial,
            limit_min=limit_min,
            limit_max=limit_max,
            timeout_us=settings.timeout_us,
        )
    return None
