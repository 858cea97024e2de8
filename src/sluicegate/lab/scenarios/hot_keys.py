"""Hot keys: a crowd reads a few keys, and the store can do half of it or less.

`flood`: a million reads a second for five keys, spread over fifty nodes. Of the reads of hot keys
at most one in a thousand is forwarded in the first ten seconds, and one in ten thousand from then
on; the keys are noticed within 50 ms; the p99 of other reads grows by a tenth at most.

`popular`, `one-key`, `zipf`: more reads than the store can do, of 500 keys that are each read three
times a second, of one key, and of 100,000 keys by Zipf's law. From one second after the onset 95%
of all reads are answered in time. A threshold in reads a second (`absolute`) notices too few keys.

`idle`, `calm`: a fifth of what the store can do, of a million keys alike and by Zipf's law. No read
is answered from memory, and at most a hundredth: a stale answer has a price and saves nothing here.

The rig: a node of a cluster with its share of the store. It has its usual reads, and then a crowd
in addition. Nodes share only the store and the crowd is spread evenly, so one node shows what fifty
do.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import FRESH, MISS
from sluicegate.lab.arrivals import Steps
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import quantile, timeline
from sluicegate.lab.rigs.read_paths import SERVED, Lookup, ReadPath, ShieldedReads, VersionedStore
from sluicegate.lab.scenario import (
    Curves,
    Figures,
    PlotSpec,
    Scenario,
    candidate_maker,
)
from sluicegate.lab.world import World, run
from sluicegate.policies.cache.hot_key import COLD, REFRESH, HotKeySettings

BUCKET_US: Final = 100_000
CROWD_US: Final = 100_000
SETTLE_US: Final = 1_000_000  # from the onset, until reads must be answered


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FloodRig:
    """The usual reads are `per_s` less the crowd's; the crowd's share goes to `hot_keys` keys.

    The usual reads are of `other_keys`, by Zipf's law with `skew`; 0: all alike.
    """

    per_s: float = 20_000.0
    hot_keys: int = 5
    hot_share: float = 0.8
    other_keys: int = 50_000
    skew: float = 0.0
    begin_us: int = 3_000_000
    early_us: int = 10_000_000  # the first part of the flood, and then it is steady
    span_us: int = 24_000_000
    phase_us: int = 1_000_000  # it begins up to so much later, by chance: at any part of a window
    timeout_us: int = 500_000
    workers: int = 16
    service: Duration = Exponential(2_000.0)  # noqa: RUF009 - frozen
    rtt_us: int = 3_000


MakeReadPath: TypeAlias = Callable[[World, VersionedStore], ReadPath]


class FloodRun(NamedTuple):
    """What one run measured; instants are of the run."""

    begin_us: int  # of the flood
    received: list[int]  # reads of hot keys, in each tenth of a second
    fetched: list[int]  # those of them that the cache did not answer
    forwarded_us: list[list[int]]  # of each hot key, when the store was asked
    noticed_us: list[float]  # of each hot key, when it was first known to be hot
    before_us: list[int]  # how long the usual reads took, before the flood
    during_us: list[int]  # and in its first part
    queue_peak: int
    settled: int  # reads of all keys that arrived a second after the onset or later
    answered: int  # of them, in time
    hits: int  # of them, from memory


def play(rig: FloodRig, make_path: MakeReadPath, seed: int) -> FloodRun:
    """Play one run."""

    async def main(world: World) -> FloodRun:
        return await _Run(world, rig, make_path).play()

    return run(main, seed).value


@final
class _Run:
    def __init__(self, world: World, rig: FloodRig, make_path: MakeReadPath) -> None:
        self._world = world
        self._rig = rig
        self._forwarded: dict[str, list[int]] = {f"hot{n}": [] for n in range(rig.hot_keys)}
        self._store = VersionedStore(
            world, rig.service, workers=rig.workers, rtt_us=rig.rtt_us, on_read=self._note_read
        )
        self._path = make_path(world, self._store)
        self._draw = world.chance("keys").draw
        self._weights: list[float] = []
        if rig.skew:
            self._weights = [*accumulate((rank + 1) ** -rig.skew for rank in range(rig.other_keys))]
        self._settled = self._answered = self._hits = 0
        usual = rig.per_s * (1 - rig.hot_share)
        begin_us = rig.begin_us + int(world.chance("begin").draw() * rig.phase_us)
        steps = Steps(((0, usual), (begin_us, rig.per_s)))
        self._instants = steps.instants_us(world.chance("arrivals"))
        buckets = rig.span_us // BUCKET_US + 1
        self._result = FloodRun(
            begin_us,
            [0] * buckets,
            [0] * buckets,
            list(self._forwarded.values()),
            [inf] * rig.hot_keys,
            [],
            [],
            0,
            0,
            0,
            0,
        )
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def play(self) -> FloodRun:
        self._set_next()
        await self._over
        await self._world.cancel_others()
        return self._result._replace(
            queue_peak=self._store.backend.queue_peak,
            settled=self._settled,
            answered=self._answered,
            hits=self._hits,
        )

    def _note_read(self, key: str) -> None:
        asked_us = self._forwarded.get(key)
        if asked_us is not None:
            asked_us.append(self._world.elapsed_us)

    def _set_next(self) -> None:
        at_us = next(self._instants)
        if at_us < self._rig.span_us:
            self._world.call_at_us(at_us, self._arrive)
        else:
            self._over.set_result(None)

    def _arrive(self) -> None:
        rig, result, now_us = self._rig, self._result, self._world.elapsed_us
        draw = self._draw()
        hot = -1
        if now_us >= result.begin_us and draw < rig.hot_share:
            hot = int(draw / rig.hot_share * rig.hot_keys)
            key = f"hot{hot}"
        else:
            key = self._usual_key()
        settled = result.begin_us + SETTLE_US <= now_us < rig.span_us - rig.timeout_us
        self._settled += settled
        looked = state, _ = self._path.look(key)
        if hot >= 0:
            result.received[now_us // BUCKET_US] += 1
            if state != COLD and result.noticed_us[hot] == inf:
                result.noticed_us[hot] = now_us
        is_hit = state in SERVED or state == REFRESH
        self._hits += settled and is_hit
        self._answered += settled and is_hit
        if state not in SERVED:
            if hot >= 0 and state != REFRESH:
                result.fetched[now_us // BUCKET_US] += 1
            # The loop holds its tasks until they are done.
            counts = settled and not is_hit
            self._loop.create_task(self._fetch(key, hot, looked, counts), name="read")
        elif hot < 0:
            self._record_time(now_us, 0)
        self._set_next()

    def _usual_key(self) -> str:
        draw = self._draw()
        if not self._weights:
            return f"usual{int(draw * self._rig.other_keys)}"
        return f"usual{bisect_left(self._weights, draw * self._weights[-1])}"

    async def _fetch(self, key: str, hot: int, looked: Lookup, counts: bool) -> None:
        begun_us = self._world.elapsed_us
        now_us = self._world.clock.now_us()
        request = Request(key, arrived_us=now_us, deadline_us=now_us + self._rig.timeout_us)
        try:
            async with asyncio.timeout(self._rig.timeout_us / 1e6):
                await self._path.fetch(request, looked)
            self._answered += counts
        except (TimeoutError, Refused):
            pass  # its time is counted all the same
        if hot < 0:
            self._record_time(begun_us, self._world.elapsed_us - begun_us)

    def _record_time(self, begun_us: int, us: int) -> None:
        result = self._result
        if begun_us < result.begin_us:
            result.before_us.append(us)
        elif begun_us < result.begin_us + self._rig.early_us:
            result.during_us.append(us)


def measure(rig: FloodRig, result: FloodRun) -> Figures:
    """What the store saw of the flood, and what the others felt of it."""
    early_us = result.begin_us + rig.early_us
    before = quantile(result.before_us, 0.99) if result.before_us else 1.0
    during = quantile(result.during_us, 0.99)
    return {
        "answered": result.answered / max(result.settled, 1),
        "from_memory": result.hits / max(result.settled, 1),
        "early_ratio": _early_ratio(rig, result),
        "steady_ratio": _steady_ratio(result, early_us),
        "detect_ms": (max(result.noticed_us, default=result.begin_us) - result.begin_us) / 1e3,
        "usual_p99": during / before,
        "usual_p99_ms": during / 1e3,
        "queue_peak": float(result.queue_peak),
        "received": float(sum(result.received)),
        "not_cached": float(sum(result.fetched)),
        "forwarded": float(sum(map(len, result.forwarded_us))),
    }


def _early_ratio(rig: FloodRig, result: FloodRun) -> float:
    end_us = result.begin_us + rig.early_us
    fetches = sum(at_us < end_us for asked_us in result.forwarded_us for at_us in asked_us)
    return fetches / max(sum(result.received[: end_us // BUCKET_US]), 1)


def _steady_ratio(result: FloodRun, begin_us: int) -> float:
    """Over whole lives of what is kept of each key, so that no edge of the run is in it.

    A life begins with a fetch, or with a crowd of them that stand close together.
    """
    keys = len(result.forwarded_us)
    end_us = len(result.received) * BUCKET_US
    fetches = 0
    received = 0.0
    for asked_us in result.forwarded_us:
        later = [at_us for at_us in asked_us if at_us >= begin_us]
        pairs = zip([-CROWD_US, *later], later, strict=False)
        lives = [late for early, late in pairs if late - early >= CROWD_US]
        # Whose fetches never pause has no lives, and all that is left of the run counts.
        first, last = (lives[0], lives[-1]) if len(lives) > 1 else (begin_us, end_us)
        fetches += bisect_left(later, last)
        received += sum(result.received[first // BUCKET_US : last // BUCKET_US]) / keys
    return fetches / received if received else inf


def curves(rig: FloodRig, result: FloodRun) -> Curves:
    """The funnel over time: what is received, not in the cache, and forwarded, in each tenth."""
    forwarded = [0] * len(result.received)
    for asked_us in result.forwarded_us:
        for at_us in asked_us:
            forwarded[at_us // BUCKET_US] += 1
    values = {
        "received_per_s": result.received,
        "not_cached_per_s": result.fetched,
        "forwarded_per_s": forwarded,
    }
    per_s = 1_000_000 / BUCKET_US
    series = {name: [count * per_s for count in counts] for name, counts in values.items()}
    return timeline(series, BUCKET_US, rig.span_us)


Fetch: TypeAlias = Callable[[str], Awaitable[int]]


@final
class TtlCache:
    """A baseline: keeps every answer for a while, in a dict with times, and deletes it on a write.

    A caller that finds nothing fetches by itself: a crowd that misses fetches as a crowd, and an
    answer that left the store before a write and arrives after it is kept. It bounds no memory.
    """

    __slots__ = ("_clock", "_entries", "_get", "_ttl_us")

    def __init__(self, clock: Clock, get: Fetch, *, ttl_us: int = 3_000_000) -> None:
        self._clock = clock
        self._get = get
        self._ttl_us = ttl_us
        self._entries: dict[str, tuple[int, int]] = {}

    def look(self, key: str) -> tuple[int, int | None]:
        """Return the state of the key and its version."""
        entry = self._entries.get(key)
        if entry is not None and self._clock.now_us() < entry[1]:
            return FRESH, entry[0]
        return MISS, None

    async def fetch(self, request: Request, looked: tuple[int, int | None]) -> int:
        """Read from the store, and keep the answer."""
        version = await self._get(request.key)
        self._entries[request.key] = version, self._clock.now_us() + self._ttl_us
        return version

    def invalidate(self, key: str) -> None:
        """Forget the key."""
        self._entries.pop(key, None)


candidate: Final = candidate_maker(play)


def _threshold(reads_per_s: int, **form: Any) -> HotKeySettings:
    """An absolute threshold: hot at that many reads in a second, whatever the load."""
    ttl_us = form.get("ttl_us", HotKeySettings().ttl_us)
    saved = (reads_per_s - 1) * ttl_us / 1e6
    return HotKeySettings(window_us=1_000_000, saved_min=saved, **form)


# The form of the system that this is modelled on: noticed at 100, cached for 3 s, fetched when it
# has expired.
MUSSEL: Final = _threshold(100, ttl_us=3_000_000, jitter=0.0, beta=0.0)
ABSOLUTE: Final = _threshold(24)


def shielded(*, at_load: bool = True, **form: Any) -> MakeReadPath:
    """Return a maker of `hot_key` and `coalesce`, with their defaults where `form` says nothing."""
    return lambda world, store: ShieldedReads(
        world.clock, world.chance("shield"), store.get, store.load if at_load else None, **form
    )


shield: Final = shielded()
mussel: Final = shielded(hot=MUSSEL, at_load=False)
absolute: Final = shielded(hot=ABSOLUTE, at_load=False)
without_coalesce: Final = shielded(coalesce=False)
without_hot_key: Final = shielded(hot_key=False)

# A store of 800 reads a second.
SMALL: Final = FloodRig(
    begin_us=2_000_000,
    early_us=5_000_000,
    span_us=10_000_000,
    workers=4,
    service=Exponential(5_000.0),
)
_USUAL_ONLY: Final = replace(SMALL, hot_keys=0, hot_share=0.0, other_keys=100_000)
OVERLOADS: Final = ("popular", "one-key", "zipf")

SCENARIO: Final = Scenario(
    number=10,
    name="hot-keys",
    title="Crowds on one key, five and 500, and loads that nothing need be kept for",
    why="A crowd on a few keys takes the store from all; a stale answer without need is a fault.",
    rigs={
        "flood": FloodRig(),
        "popular": replace(SMALL, per_s=1_680.0, hot_keys=500, hot_share=0.95),
        "one-key": replace(SMALL, per_s=5_000.0, hot_keys=1, hot_share=0.98),
        "zipf": replace(_USUAL_ONLY, per_s=1_200.0, skew=1.0),
        "idle": replace(_USUAL_ONLY, per_s=160.0, other_keys=1_000_000),
        "calm": replace(_USUAL_ONLY, per_s=160.0, skew=1.0),
    },
    candidates={
        "shield": candidate(shield),
        "absolute": candidate(absolute),
        "mussel": candidate(mussel),
        "without-coalesce": candidate(without_coalesce),
        "without-hot-key": candidate(without_hot_key),
        "ttl-cache": candidate(lambda world, store: TtlCache(world.clock, store.get)),
    },
    ours="shield",
    must_fail=("absolute", "ttl-cache", "without-coalesce", "without-hot-key"),
    goals=(
        Goal(figure="early_ratio", at_most=1e-3, cases=("flood",)),
        Goal(figure="steady_ratio", at_most=1e-4, cases=("flood",)),
        Goal(figure="detect_ms", at_most=50.0, cases=("flood",)),
        Goal(figure="usual_p99", at_most=1.1, cases=("flood",)),
        Goal(figure="answered", at_least=0.95, cases=OVERLOADS),
        Goal(figure="from_memory", at_most=0.0, cases=("idle",)),
        Goal(figure="from_memory", at_most=0.01, cases=("calm",)),
    ),
    measure=measure,
    curves=curves,
    columns=("early_ratio", "steady_ratio", "detect_ms", "usual_p99", "answered", "from_memory"),
    plots=(
        PlotSpec(
            "Reads of hot keys that reach the store", "forwarded_per_s", "a second", log_y=True
        ),
    ),
    scale="one node of the fifty, at 20,000 a second in the flood, with a fiftieth of the store",
)
