"""Stress: how the service is doing, as one state that others read.

It refuses nobody. It is fed measurements and answers with a frozen `StressState`: a level, and why.
Four signals, because each is blind where another sees:

    signal          fed by                      blind to
    latency ratio   work that has ended         a gate that refuses nearly all, a changed mix
    queue delay     whoever lets a queue out    work that is slow without anybody waiting
    utilization     the machine, 0 to 1         a service that waits for others
    loop lag        the event loop's owner      everything outside of this process

The latency ratio is that of `kernels/latency_ratio`, one for each operation class, for a changed
mix of classes looks like a slow-down; the worst counts. Only work that the backend really did is
fed: a cache hit or a coalesced follower would make it bimodal. Mussel's form ("From Static Rate
Limiting to Adaptive Traffic Management in Airbnb's Key-Value Store", 2025) is the ratio alone, of
two P2 estimators, with a threshold of 0.3: `StressSettings(ratio="p2", ratio_enter=0.3)`. The
default is the ratio with a frozen baseline and a threshold of 0.6, for the former heals while work
is still slow.

Queue delay and loop lag are means over a window, the utilization is its last reading. Each signal
has three numbers: it begins to count at `enter`, counts until it is back at `leave`, and is hard
overload from `hard` on. The queue's numbers grow with the work: nobody should be alarmed by a wait
of less than half of what the work behind takes, so they are never below `queue_per_baseline` of the
quickest class's healthy p95. A sensor that falls silent is forgotten after `stale_us`, the queue's
delay after two windows: whoever is refused before the queue tells of none, and what is old must not
hold the gate shut.

The queue has no hysteresis unless it is given one: a shedder that moves a level by this signal
swings the more for it. In the closed loop of the shedder's tests, ten times too much, 0.93 of what
could be served was; with `leave` at half of `enter` 0.91; with means over half a second too, 0.79.

With `queue_standstill` a delay below `queue_us_hard` does not count while the number that waits
stands still: it is that of callers who wait for their answers, and to let in less makes nobody
faster (`queue/standstill.py`). By Little's law the number is the sum of delays over the time. A
verdict that it moved lasts until the delay has been short for `_CALM_WINDOWS`.

The picture keeps two things apart: work is `slow`, which its own cause may have, or there is too
much of it (`crowded`), which letting in less relieves.

Cost: a look-up and a bucket for each piece of work; the picture is drawn once each `refresh_us` and
read in between. Bounds: `operations_max` classes with a ratio of their own, the rest share one. A
class of which ten minutes did not bring enough to judge by makes room for what comes: those that
share one look slow as soon as there is more of the slow among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.latency_ratio import NEUTRAL, LatencyRatio, RatioSettings
from sluicegate.policies.forms.mussel.ratio import P2Ratio
from sluicegate.policies.keyed_table import FORGET_US
from sluicegate.policies.queue.standstill import Standstill
from sluicegate.policies.settings import check_ranges, one_of
from sluicegate.policies.stack import BaseEndObserver

OTHERS: Final = "(others)"
_SWEEP_US: Final = 60_000_000  # longer than it takes to have enough of what comes
RATIO_FORMS: Final = ("frozen", "p2")
_SPAN_US_MAX: Final = 1 << 53
_CALM_WINDOWS: Final = 10
_NOISE_PARTS: Final = 7  # of four: they leave in crowds
# Below the first there must not be the second.
_ORDERS: Final = (
    ("ratio_hard", "ratio_enter"),
    ("ratio_enter", "ratio_leave"),
    ("utilization_leave", "utilization_enter"),
    ("utilization_enter", "utilization_hard"),
    ("queue_us_leave", "queue_us_enter"),
    ("queue_us_enter", "queue_us_hard"),
    ("lag_us_leave", "lag_us_enter"),
    ("lag_us_enter", "lag_us_hard"),
)


class StressLevel(IntEnum):
    """How bad it is."""

    CALM = 0
    STRESSED = 1
    HARD = 2  # nothing is to spare, not even for whoever starves


class StressState(NamedTuple):
    """The state of the service at one instant; None where nobody has told anything lately."""

    at_us: int
    level: StressLevel
    why: tuple[str, ...]
    slow: bool  # the latency ratio counts
    crowded: bool  # one of the others does
    depth: float  # how many times its `enter` the worst of those stands at; 0.0 if none counts
    ratio: float
    slowest: str  # the operation class with that ratio
    utilization: float | None
    queue_us: int | None
    lag_us: int | None


class BaselineRow(NamedTuple):
    """How long work usually takes (p95), of an operation and, where it is of one, a shard."""

    shard: str
    operation: str
    baseline_us: float
    learned_us: int  # when that was last seen


class BaselineKeeper(Protocol):
    """Whoever knows what is usual, and can begin with what was usual elsewhere."""

    def baselines(self) -> list[BaselineRow]:
        """What is usual, as far as it is known."""
        ...

    def begin_with(self, row: BaselineRow) -> None:
        """Take in what was usual elsewhere, where that is not known here."""
        ...


class StressSource(Protocol):
    """Where a picture comes from; what a shedder is given."""

    def read(self, now_us: int) -> StressState:
        """How the service is doing."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class StressSettings:
    """When each signal begins to count, until when, and from where on it is hard overload."""

    ratio: str = "frozen"
    ratio_enter: float = ranged(0.6, 0.0, 1.0)
    ratio_leave: float = ranged(0.85, 0.0, 1.0)
    ratio_hard: float = ranged(0.3, 0.0, 1.0)
    samples_min: int = ranged(200, 1, _SPAN_US_MAX)
    utilization_enter: float = ranged(0.85, 0.0, 1.0)
    utilization_leave: float = ranged(0.75, 0.0, 1.0)
    utilization_hard: float = ranged(0.97, 0.0, 1.0)
    queue_us_enter: int = ranged(20_000, 1, _SPAN_US_MAX)
    queue_us_leave: int = ranged(20_000, 0, _SPAN_US_MAX)
    queue_us_hard: int = ranged(200_000, 1, _SPAN_US_MAX)
    queue_per_baseline: float = ranged(0.5, 0.0, 100.0)
    queue_standstill: bool = False  # no signal while as many wait as before
    lag_us_enter: int = ranged(50_000, 1, _SPAN_US_MAX)
    lag_us_leave: int = ranged(25_000, 0, _SPAN_US_MAX)
    lag_us_hard: int = ranged(500_000, 1, _SPAN_US_MAX)
    window_us: int = ranged(100_000, 1, _SPAN_US_MAX)
    refresh_us: int = ranged(50_000, 0, _SPAN_US_MAX)
    stale_us: int = ranged(5_000_000, 1, _SPAN_US_MAX)
    operations_max: int = ranged(64, 1, 4096)

    def __post_init__(self) -> None:
        one_of("stress.ratio", self.ratio, RATIO_FORMS)
        check_ranges("stress", self)
        for lower, upper in _ORDERS:
            low, high = getattr(self, lower), getattr(self, upper)
            if low > high:
                raise BadValue(f"stress.{lower}", low, f"it must not be above {upper}, {high}")
        if self.stale_us < self.window_us:
            raise BadValue(
                "stress.stale_us", self.stale_us, f"it must not be below window_us {self.window_us}"
            )


class StressStats(NamedTuple):
    """The picture now, and what it was drawn from."""

    picture: StressState
    worked: int
    operations: int
    pictures: int
    times_stressed: int


def _counts(counting: bool, value: float, enter: float, leave: float) -> bool:
    """Hysteresis of a signal that rises with stress."""
    return value > (leave if counting else enter)


def _deeper(depth: float, value: float, enter: float) -> float:
    """The deeper of what was found so far and this signal; `enter` 0.0 is as deep as 1."""
    return max(depth, value / enter if enter > 0.0 else 1.0)


@final
class _WindowMean:
    """The mean of the last window that is over and of the one in progress."""

    __slots__ = (
        "_begin_us",
        "_count",
        "_past_count",
        "_past_sum",
        "_recorded_us",
        "_stale_us",
        "_sum",
    )

    def __init__(self, window_us: int, stale_us: int) -> None:
        self._stale_us = stale_us
        self._begin_us = -window_us
        self._sum = self._count = self._past_sum = self._past_count = 0
        self._recorded_us = 0

    def add(self, value: int, now_us: int, window_us: int) -> None:
        """Take in one value; below 0 counts as 0."""
        passed_us = now_us - self._begin_us
        if passed_us >= window_us:
            near = passed_us < 2 * window_us
            self._past_sum = self._sum if near else 0
            self._past_count = self._count if near else 0
            self._sum = self._count = 0
            self._begin_us = now_us
        if value > 0:
            self._sum += value
        self._count += 1
        self._recorded_us = now_us

    def mean(self, now_us: int) -> int | None:
        """None if nothing was told lately."""
        count = self._count + self._past_count
        if count == 0 or now_us - self._recorded_us > self._stale_us:
            return None
        return (self._sum + self._past_sum) // count


@final
class _LineLength:
    """How many were in line at a time, on the average of the last two windows."""

    __slots__ = ("_begin_us", "_last", "length", "sum_us")

    def __init__(self) -> None:
        self.length = self._last = -1
        self.begin(-1)

    def begin(self, now_us: int) -> None:
        """Forget what was."""
        self.sum_us = 0
        self._begin_us = now_us
        self.length = self._last = -1

    def end_window(self, now_us: int, window_us: int) -> None:
        """By Little's law: what all have waited, over the time."""
        passed_us = now_us - self._begin_us
        if self._begin_us < 0 or passed_us < 0:
            self.begin(now_us)
            return
        if passed_us < window_us:
            return
        length = self.sum_us // max(1, passed_us)
        if self._last >= 0:
            self.length = (length + self._last) // 2
        self._last = length
        self.sum_us = 0
        self._begin_us = now_us


@final
class Stress(BaseEndObserver):
    """Collects the signals and draws the picture."""

    __slots__ = (
        "_due_us",
        "_lag",
        "_lagging",
        "_long_us",
        "_operations_max",
        "_pictures",
        "_queue",
        "_queueing",
        "_ratios",
        "_slow",
        "_standstill",
        "_state",
        "_swept_us",
        "_times_stressed",
        "_utilization",
        "_utilized",
        "_utilized_us",
        "_waits",
        "_window_us",
        "_worked",
        "settings",
    )

    def __init__(self, settings: StressSettings | None = None) -> None:
        settings = StressSettings() if settings is None else settings
        self.settings = settings
        self._window_us = settings.window_us
        self._operations_max = settings.operations_max
        self._ratios: dict[str, LatencyRatio | P2Ratio] = {}
        self._queue = _WindowMean(settings.window_us, 2 * settings.window_us)
        self._lag = _WindowMean(settings.window_us, settings.stale_us)
        self._standstill = (
            Standstill(_NOISE_PARTS, shrinking=False) if settings.queue_standstill else None
        )
        self._long_us = 0  # when the queue's delay was last long
        self._waits = _LineLength()
        self._utilization = 0.0
        self._utilized_us: int | None = None
        self._slow = self._queueing = self._lagging = self._utilized = False
        self._state = StressState(
            0, StressLevel.CALM, (), False, False, 0.0, NEUTRAL, "", None, None, None
        )
        self._due_us = self._swept_us = 0
        self._worked = self._pictures = self._times_stressed = 0

    def record_work(self, operation: str, service_us: int, now_us: int) -> None:
        """The backend did a piece of work: how long it took there, without any queue of ours.

        A timeout is fed as the time it took. A cache hit is not fed.
        """
        ratio = self._ratios.get(operation)
        if ratio is None:
            ratio = self._ratio_of(operation, now_us)
        ratio.add(service_us if service_us > 0 else 0, now_us)
        self._worked += 1

    def record_utilization(self, utilization: float, now_us: int) -> None:
        """A reading of how full the machine is; above 1 counts as 1."""
        if not 0.0 <= utilization < 1e9:
            raise BadValue("utilization", utilization, "give a finite share, 0 idle and 1 full")
        self._utilization = min(utilization, 1.0)
        self._utilized_us = now_us

    def record_queue_delay(self, delay_us: int, now_us: int) -> None:
        """A piece of work left a queue, for whatever reason, after so long."""
        self._queue.add(delay_us, now_us, self._window_us)
        if delay_us > 0:
            self._waits.sum_us += delay_us

    def record_loop_lag(self, lag_us: int, now_us: int) -> None:
        """A timer of the event loop came so much too late."""
        self._lag.add(lag_us, now_us, self._window_us)

    def read(self, now_us: int) -> StressState:
        """The picture; drawn anew once each `refresh_us`."""
        picture = self._state
        if now_us < self._due_us and now_us >= picture.at_us:
            return picture
        return self._draw(now_us)

    # A stack tells its observers; these are what concerns stress.

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Admitted work has ended: if a backend did it, its time counts."""
        measured = request.measured
        if measured is None or measured.from_cache or outcome is Outcome.IGNORE:
            return
        self.record_work(request.operation, measured.service_us, now_us)

    def record_wait(self, request: Request, delay_us: int, now_us: int) -> None:
        """A stage that waits has let it through, or has refused it."""
        self._queue.add(delay_us, now_us, self._window_us)
        if delay_us > 0:
            self._waits.sum_us += delay_us

    @property
    def machine_busy(self) -> bool:
        """Whether utilization or loop lag counted in the last picture, whatever the queue says."""
        return self._utilized or self._lagging

    def stats(self) -> StressStats:
        """The last picture, and counts since the start."""
        return StressStats(
            self._state, self._worked, len(self._ratios), self._pictures, self._times_stressed
        )

    def baselines(self) -> list[BaselineRow]:
        """What is usual, of each operation of which it is known."""
        return [
            BaselineRow("", operation, ratio.baseline_us(), ratio.learned_us)
            for operation, ratio in self._ratios.items()
            if isinstance(ratio, LatencyRatio) and ratio.baseline_us() > 0.0
        ]

    def begin_with(self, row: BaselineRow) -> None:
        """Begin with what was usual elsewhere, where that is not known here."""
        ratio = self._ratios.get(row.operation)
        if ratio is None:
            ratio = self._ratio_of(row.operation, row.learned_us)
        if isinstance(ratio, LatencyRatio):
            ratio.begin_with(row.baseline_us, row.learned_us)

    def _ratio_of(self, operation: str, now_us: int) -> LatencyRatio | P2Ratio:
        ratios = self._ratios
        if len(ratios) >= self._operations_max and now_us - self._swept_us >= _SWEEP_US:
            self._make_room(now_us)
        if len(ratios) >= self._operations_max:
            found = ratios.get(OTHERS)
            if found is not None:
                return found
            operation = OTHERS
        settings = self.settings
        ratio: LatencyRatio | P2Ratio
        if settings.ratio == "p2":
            ratio = P2Ratio(
                samples_min=settings.samples_min,
                enter=settings.ratio_enter,
                leave=settings.ratio_leave,
            )
        else:
            ratio = LatencyRatio(
                RatioSettings(
                    enter=settings.ratio_enter,
                    leave=settings.ratio_leave,
                    samples_min=settings.samples_min,
                )
            )
        ratios[operation] = ratio
        return ratio

    def _make_room(self, now_us: int) -> None:
        """Forget what the picture has had nothing from."""
        begun, self._swept_us = self._swept_us != 0, now_us
        forgotten = [
            operation
            for operation, ratio in self._ratios.items()
            if isinstance(ratio, LatencyRatio) and now_us - ratio.sampled_us >= FORGET_US
        ]
        if begun and forgotten:
            for operation in {*forgotten, OTHERS} & self._ratios.keys():
                del self._ratios[operation]

    def _draw(self, now_us: int) -> StressState:
        settings = self.settings
        why: list[str] = []
        ratio, slowest, baseline_us = self._worst(now_us)
        utilization = self._utilization_now(now_us)
        queue_us, lag_us = self._queue.mean(now_us), self._lag.mean(now_us)
        scale, depth = 1.0, 0.0
        if baseline_us * settings.queue_per_baseline > settings.queue_us_enter:
            scale = baseline_us * settings.queue_per_baseline / settings.queue_us_enter

        self._slow = any(one.stressed for one in self._ratios.values())
        hard = self._slow and ratio < settings.ratio_hard
        if self._slow:
            why.append(f"{slowest or 'work'} is {1 / max(ratio, 0.001):.1f} times as slow as usual")
        self._utilized = utilization is not None and _counts(
            self._utilized, utilization, settings.utilization_enter, settings.utilization_leave
        )
        if utilization is not None and self._utilized:
            hard = hard or utilization > settings.utilization_hard
            depth = _deeper(depth, utilization, settings.utilization_enter)
            why.append(f"utilization is {utilization:.0%}")
        self._queueing = queue_us is not None and _counts(
            self._queueing,
            queue_us,
            settings.queue_us_enter * scale,
            settings.queue_us_leave * scale,
        )
        if self._standstill is not None and self._is_still(queue_us, scale, now_us):
            self._queueing = False
        if queue_us is not None and self._queueing:
            hard = hard or queue_us > settings.queue_us_hard * scale
            depth = _deeper(depth, queue_us, settings.queue_us_enter * scale)
            why.append(f"work waits {queue_us / 1_000:,.1f} ms in the queue")
        self._lagging = lag_us is not None and _counts(
            self._lagging, lag_us, settings.lag_us_enter, settings.lag_us_leave
        )
        if lag_us is not None and self._lagging:
            hard = hard or lag_us > settings.lag_us_hard
            depth = _deeper(depth, lag_us, settings.lag_us_enter)
            why.append(f"the event loop is {lag_us / 1_000:,.1f} ms late")

        level = StressLevel.HARD if hard else StressLevel.STRESSED if why else StressLevel.CALM
        if level is not StressLevel.CALM and self._state.level is StressLevel.CALM:
            self._times_stressed += 1
        crowded = self._utilized or self._queueing or self._lagging
        picture = StressState(
            now_us,
            level,
            tuple(why),
            self._slow,
            crowded,
            depth,
            ratio,
            slowest,
            utilization,
            queue_us,
            lag_us,
        )
        self._state = picture
        self._due_us = now_us + settings.refresh_us
        self._pictures += 1
        return picture

    def _is_still(self, queue_us: int | None, scale: float, now_us: int) -> bool:
        """Whether as many wait as before, though for long."""
        standstill, settings = self._standstill, self.settings
        if standstill is None:
            return False
        window_us, waits = settings.window_us, self._waits
        if queue_us is None or not self._queueing:
            waits.begin(now_us)
            lately = 0 <= now_us - self._long_us < _CALM_WINDOWS * window_us
            if not (standstill.moves and lately):
                standstill.record_calm()
            return False
        self._long_us = now_us
        if queue_us > settings.queue_us_hard * scale:
            standstill.record_late()
        waits.end_window(now_us, 2 * window_us)
        if waits.length < 0:
            return not standstill.moves
        bound_us = int(2 * settings.queue_us_enter * scale)
        return standstill.holds(waits.length, queue_us, now_us, bound_us, 4 * window_us)

    def _worst(self, now_us: int) -> tuple[float, str, float]:
        """The lowest ratio, its class, and the quickest class's healthy p95 (0.0 if unknown)."""
        worst, slowest, baseline_us = NEUTRAL, "", 0.0
        for operation, one in self._ratios.items():
            ratio = one.ratio(now_us)
            if ratio < worst:
                worst, slowest = ratio, operation
            if isinstance(one, LatencyRatio):
                healthy_us = one.baseline_us()
                if healthy_us > 0.0 and (baseline_us == 0.0 or healthy_us < baseline_us):
                    baseline_us = healthy_us
        return worst, slowest, baseline_us

    def _utilization_now(self, now_us: int) -> float | None:
        recorded_us = self._utilized_us
        if recorded_us is None or now_us - recorded_us > self.settings.stale_us:
            return None
        return self._utilization
