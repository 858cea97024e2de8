"""What a trace is replayed against: a station with a policy, or caches and counters.

The station has workers, and each unit of cost takes one of them the same time; what all of them can
serve a second is the `capacity`. Every candidate is a policy as in production, in a world. A run
fills a ledger, so its figures are those of every other run.

A trace without times says nothing of load. Its keys are read in order, so many a second; what is
measured is how much a cache answers and how many of the hottest keys a counter finds.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol, final
from zlib import crc32

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.kernels.count_min import CountMin, fingerprint
from sluicegate.kernels.lru_ttl import ENTRY_BYTES, TTL_US_MAX, LruTtl
from sluicegate.kernels.space_saving import SpaceSaving
from sluicegate.lab.arrivals import Even
from sluicegate.lab.baselines.queues import fifo_pool
from sluicegate.lab.durations import Constant
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import good_quantile_ms, refused_p99_ms
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import server_chain
from sluicegate.lab.station_candidates import queue
from sluicegate.lab.task_mode import MakePolicy, PolicyServer
from sluicegate.lab.traces.trace import Trace, TraceRow
from sluicegate.lab.world import World, run
from sluicegate.policies.cache.hot_key import COLD, MISS, REFRESH, STALE, HotKey, HotKeySettings

ROWS_MAX: Final = 200_000
DISTINCT_MAX: Final = 5_000_000
RUN_US_MAX: Final = 400 * 86_400_000_000
LOAD: Final = 0.8  # of a capacity that nobody has set
CACHE_MAX: Final = 1 << 22  # entries
CALLERS: Final = 1_000
HOT: Final = 100  # keys that a counter should know
_US: Final = 1e6
_SLACK: Final = 20

OURS: Final = "chain"
BASELINE: Final = "fifo"
CANDIDATES: Final[Mapping[str, MakePolicy]] = {
    OURS: server_chain,
    "queue": queue,
    BASELINE: fifo_pool,
}


class Survey(NamedTuple):
    """What a trace is like."""

    rows: int
    cost: int
    span_us: int
    peak_per_s: float  # cost of the worst second
    cut: bool  # there is more of it

    @property
    def cost_per_s(self) -> float:
        """On average."""
        return self.cost * _US / max(self.span_us, 1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """What serves a trace: so many workers, so much cost a second, callers who wait so long."""

    workers: int
    capacity: float
    timeout_us: int
    speed: float = 1.0
    rows_max: int = ROWS_MAX

    def __post_init__(self) -> None:
        if not 0 < self.capacity <= 1e15:
            raise BadValue("--capacity", self.capacity, "give units of cost a second, above 0")
        if not 0 < self.speed <= 1e6:
            raise BadValue("--speed", self.speed, "give a factor above 0, at most 1,000,000")

    def work_us(self, cost: int) -> int:
        """How long a worker has with it."""
        return max(round(cost * self.workers * _US / self.capacity), 1)


def survey_trace(trace: Trace, *, speed: float = 1.0, rows_max: int = ROWS_MAX) -> Survey:
    """Read the trace once."""
    rows = cost = last_us = 0
    second, in_second, peak = -1, 0, 0
    for access in islice(trace.rows(), rows_max + 1):
        if rows == rows_max:
            return Survey(rows, cost, last_us, max(peak, in_second), cut=True)
        last_us = int(access.at_us / speed)
        rows += 1
        cost += access.cost
        if last_us // 1_000_000 != second:
            second, in_second, peak = last_us // 1_000_000, 0, max(peak, in_second)
        in_second += access.cost
    if not rows:
        raise BadValue("trace", trace.name, "give one that has rows")
    return Survey(rows, cost, last_us, max(peak, in_second), cut=False)


def design_station(
    survey: Survey, *, workers: int, capacity: float | None, timeout_us: int | None, speed: float
) -> Station:
    """Build the station: what is not given is chosen so that the mean load is `LOAD`."""
    enough = capacity if capacity is not None else max(survey.cost_per_s, 1e-6) / LOAD
    mean_us = survey.cost / survey.rows * workers * _US / enough
    patience_us = timeout_us if timeout_us is not None else max(round(_SLACK * mean_us), 500_000)
    return Station(
        workers=workers, capacity=enough, timeout_us=patience_us, speed=speed, rows_max=survey.rows
    )


def rig_of(place: Station, survey: Survey) -> Rig:
    """The station as a rig, whose unit of work is a microsecond of a worker."""
    kind = WorkKind(name="trace", arrivals=Even(0), timeout_us=place.timeout_us, callers=CALLERS)
    span_us = survey.span_us + place.timeout_us + 1_000_000
    return Rig(
        kinds=(kind,), workers=place.workers, service=Constant(1), span_us=span_us, warm_us=0
    )


def replay_trace(
    trace: Trace, place: Station, survey: Survey, make_policy: MakePolicy, seed: int
) -> RunLedger:
    """Replay the whole trace against one candidate."""
    rig = rig_of(place, survey)

    async def main(world: World) -> RunLedger:
        ledger = RunLedger(rig.kinds, warm_us=0, span_us=rig.span_us)
        call = PolicyServer(world, rig, make_policy(rig, world), ledger).door(0, rig.kinds[0])

        async def one(number: int, access: TraceRow) -> None:
            await call(_request(number, access, place, world))

        for number, access in enumerate(islice(trace.rows(), place.rows_max)):
            await world.until_us(int(access.at_us / place.speed))
            world.spawn(one(number, access), f"trace-{number}")
        await world.until_us(rig.span_us)
        await world.cancel_others()
        return ledger

    return run(main, seed, span_us_max=RUN_US_MAX).value


def figures_of(place: Station, survey: Survey, ledger: RunLedger) -> dict[str, float]:
    """The figures of a candidate."""
    row = ledger.by_kind[0]
    able_us = place.workers * max(survey.span_us, 1)
    return {
        "success": row.good / max(row.offered, 1),
        "refused": row.refused / max(row.offered, 1),
        "late": row.late / max(row.offered, 1),
        "utilization": ledger.useful_us / able_us,
        "wasted": ledger.wasted_us / able_us,
        "p50_ms": good_quantile_ms(ledger, 0.5),
        "p99_ms": good_quantile_ms(ledger, 0.99),
        "refused_p99_ms": refused_p99_ms(ledger),
        "queue_peak": float(ledger.queue_peak),
    }


def replay_keys(
    trace: Trace, *, capacity: int, per_s: float, rows_max: int, seed: int
) -> dict[str, dict[str, float]]:
    """Replay a trace of keys: hit ratio and recall, by candidate."""
    if not 1 <= capacity <= CACHE_MAX:
        raise BadValue("--capacity", capacity, f"give entries, 1 to {CACHE_MAX:,}")
    random_source = RandomSource(seed)
    caches: dict[str, _Cache] = {
        "hot_key": _Shield(random_source),
        "lru_ttl": _Kernel(random_source, capacity, None),
        "lru_ttl, doorman": _Kernel(
            random_source, capacity, CountMin(1 << max(capacity.bit_length(), 4))
        ),
        "plain lru": _Plain(capacity),
    }
    counters = {
        f"space_saving {size:,}": SpaceSaving(size) for size in (20 * HOT, 10 * HOT, 2 * HOT)
    }
    exact: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    rows = 0
    for access in islice(trace.rows(), rows_max):
        now_us = int(rows * _US / per_s)
        rows += 1
        exact[access.key] += 1
        if len(exact) > DISTINCT_MAX:
            raise BadValue("trace", trace.name, f"more than {DISTINCT_MAX:,} keys: set --rows")
        for name, cache in caches.items():
            hits[name] += cache.look_up(access.key, now_us)
        for counter in counters.values():
            counter.update(access.key)
    if not rows:
        raise BadValue("trace", trace.name, "give one that has rows")
    found = {name: {"hit_ratio": hits[name] / rows} for name in caches}
    hottest = min(HOT, len(exact))
    # Of keys that are asked for as often as the last of the hottest, any will do.
    least = exact.most_common(hottest)[-1][1]
    for name, counter in counters.items():
        found_keys = sum(exact[str(heavy.key)] >= least for heavy in counter.top(hottest))
        found[name] = {f"recall@{HOT}": found_keys / hottest}
    return found


def _request(number: int, access: TraceRow, place: Station, world: World) -> Request:
    now_us = world.clock.now_us()
    # A trace does not say who asked. Whoever asks for one key is taken for one caller.
    caller = crc32(access.key.encode()) if access.key else number
    return Request(
        access.key,
        caller=f"trace-{caller % CALLERS}",
        cost=place.work_us(access.cost),
        arrived_us=now_us,
        deadline_us=now_us + place.timeout_us,
    )


class _Cache(Protocol):
    """A cache that keys are looked up in."""

    def look_up(self, key: str, now_us: int) -> bool:
        """Whether it had the key; if not, it may store what is fetched."""
        ...


@final
class _Shield:
    """The production policy with its defaults: only what is hot is kept."""

    def __init__(self, random_source: RandomSource) -> None:
        self._draw = random_source.of("hot_key").draw
        self._hot: HotKey[bool] = HotKey(HotKeySettings())

    def look_up(self, key: str, now_us: int) -> bool:
        state, _ = self._hot.look(key, now_us, self._draw())
        if state in {MISS, STALE, REFRESH}:
            fill = self._hot.begin(key, now_us)
            fill.put(True, 1, now_us=now_us, draw=self._draw())
        return state not in {COLD, MISS, STALE}


@final
class _Kernel:
    """The kernel, so many entries that never grow old; with a doorman or without."""

    def __init__(
        self, random_source: RandomSource, capacity: int, doorman: CountMin | None
    ) -> None:
        self._draw = random_source.of("lru_ttl").draw
        self._doorman = doorman
        self._cache: LruTtl[bool] = LruTtl(
            capacity * (ENTRY_BYTES + 1),
            ttl_us=TTL_US_MAX,
            jitter=0.0,
            beta=0.0,
            admission=None if doorman is None else lambda key: doorman.estimate(fingerprint(key)),
        )

    def look_up(self, key: str, now_us: int) -> bool:
        if self._doorman is not None:
            self._doorman.add(fingerprint(key))
        state, _ = self._cache.get(key, now_us, self._draw())
        if state != MISS:
            return True
        epoch = self._cache.begin(key)
        self._cache.put(key, True, 1, epoch=epoch, now_us=now_us, draw=self._draw())
        return False


@final
class _Plain:
    """Least recently used, as many entries as it may have, and no time at all."""

    def __init__(self, capacity: int) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()
        self._capacity = capacity

    def look_up(self, key: str, now_us: int) -> bool:
        if key in self._keys:
            self._keys.move_to_end(key)
            return True
        self._keys[key] = None
        if len(self._keys) > self._capacity:
            self._keys.popitem(last=False)
        return False
