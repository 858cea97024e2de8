"""Generated traces, in the shapes that recorded ones have.

    zipf        the n-th most popular key comes as often as 1 / n^alpha
    bursts      on and off, far above the mean while it is on
    diurnal     a day that swings as a sine, in minutes
    hot-shift   most requests go to a handful of keys, and every few seconds to another handful
    scans       point reads, and now and then a scan that costs as much as hundreds of them

The same seed makes the same trace to the byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Final, Protocol, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Arrivals, Diurnal, OnOff, Poisson
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.traces.trace import COST_MAX, Trace, TraceRow

KEYS_MAX: Final = 10_000_000
ALPHA_MAX: Final = 10.0
SPAN_US: Final = 20_000_000
_MINUTE_US: Final = 60_000_000

# Of an instant, the key and the cost.
Pick: TypeAlias = Callable[[int], tuple[str, int]]


class KeyChoice(Protocol):
    """Which keys are requested."""

    def picker(self, chance: Chance) -> Pick:
        """A draw for each access."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Zipf:
    """`keys` of them, the n-th as often as 1 / n^alpha; 0 is all alike."""

    alpha: float = 1.0
    keys: int = 10_000

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= ALPHA_MAX:
            raise BadValue("zipf.alpha", self.alpha, f"give 0 to {ALPHA_MAX:g}")
        if not 1 <= self.keys <= KEYS_MAX:
            raise BadValue("zipf.keys", self.keys, f"give 1 to {KEYS_MAX:,}")

    def picker(self, chance: Chance) -> Pick:
        """The key by its place in the sum of all shares."""
        sums, draw = _sums(self.alpha, self.keys), chance.draw
        most = sums[-1]
        last = len(sums) - 1
        return lambda _: (f"k{min(bisect_left(sums, draw() * most), last)}", 1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HotShift:
    """`share` of all go to `hot` keys, to others of them after each `every_us`; the rest to any."""

    hot: int = 5
    share: float = 0.8
    every_us: int = 5_000_000
    keys: int = 10_000

    def __post_init__(self) -> None:
        if not 1 <= self.hot <= self.keys <= KEYS_MAX:
            raise BadValue("hot_shift.hot", self.hot, f"give 1 to keys, at most {KEYS_MAX:,}")
        if not 0 <= self.share <= 1:
            raise BadValue("hot_shift.share", self.share, "give a share from 0 to 1")
        if self.every_us < 1:
            raise BadValue("hot_shift.every_us", self.every_us, "give at least a microsecond")

    def picker(self, chance: Chance) -> Pick:
        """The hot ones of the moment, or any."""
        draw = chance.draw

        def pick(at_us: int) -> tuple[str, int]:
            if draw() >= self.share:
                return f"k{int(draw() * self.keys)}", 1
            begin = at_us // self.every_us * self.hot
            return f"k{(begin + int(draw() * self.hot)) % self.keys}", 1

        return pick


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScanMix:
    """Zipf reads of cost 1, and in `share` of all cases a scan of `scan_cost`."""

    share: float = 0.01
    scan_cost: int = 200
    reads: Zipf = Zipf(alpha=0.8)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise BadValue("scan_mix.share", self.share, "give a share from 0 to 1")
        if not 1 <= self.scan_cost <= COST_MAX:
            raise BadValue("scan_mix.scan_cost", self.scan_cost, f"give 1 to {COST_MAX:,}")

    def picker(self, chance: Chance) -> Pick:
        """A read, or a scan from some key on."""
        read, draw = self.reads.picker(chance), chance.draw

        def pick(at_us: int) -> tuple[str, int]:
            key, cost = read(at_us)
            return (f"scan-{key}", self.scan_cost) if draw() < self.share else (key, cost)

        return pick


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShape:
    """When requests come, for which keys, and for how long."""

    arrivals: Arrivals
    keys: KeyChoice
    span_us: int = SPAN_US

    def rows(self, seed: int) -> Iterator[TraceRow]:
        """The rows, as a stream."""
        random_source = RandomSource(seed)
        pick = self.keys.picker(random_source.of("keys"))
        for at_us in self.arrivals.instants_us(random_source.of("arrivals")):
            if at_us >= self.span_us:
                return
            key, cost = pick(at_us)
            yield TraceRow(at_us, key, 0, cost)


SHAPES: Final[Mapping[str, TraceShape]] = {
    "zipf": TraceShape(arrivals=Poisson(2_000), keys=Zipf()),
    "bursts": TraceShape(
        arrivals=OnOff(on_per_s=6_000, off_per_s=400, on_us=500_000, off_us=1_500_000),
        keys=Zipf(),
    ),
    "diurnal": TraceShape(
        arrivals=Diurnal(mean_per_s=600, swing=0.8, day_us=_MINUTE_US),
        keys=Zipf(),
        span_us=2 * _MINUTE_US,
    ),
    "hot-shift": TraceShape(arrivals=Poisson(2_000), keys=HotShift()),
    "scans": TraceShape(arrivals=Poisson(1_000), keys=ScanMix()),
}


def generate_trace(name: str, seed: int) -> Trace:
    """Generate the trace of one of the shapes."""
    shape = SHAPES.get(name)
    if shape is None:
        raise BadValue("shape", name, f"give one of {', '.join(SHAPES)}")
    return Trace(name, timed=True, keyed=True, rows=partial(shape.rows, seed))


@lru_cache(maxsize=8)
def _sums(alpha: float, keys: int) -> list[float]:
    return list(accumulate(1.0 / n**alpha for n in range(1, keys + 1)))
