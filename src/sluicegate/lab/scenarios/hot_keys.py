"""Hot keys: a crowd asks for five keys, a million times a second, spread over fifty nodes.

Each caller stays within its quota, and the shard that holds the keys is lost all the same, with all
others who need it. Each node notices the keys by itself, keeps their answers for a few seconds,
fetches ahead of their end, and lets one fetch bring what many ask for at once; so the flood becomes
a trickle. The goals: of what is received for the hot keys at most one in a thousand is forwarded in
the first ten seconds, one in ten thousand from then on; the keys are noticed within 50 ms; and
those who read other keys feel nothing (their p99 grows by a tenth at most).

The rig: a node of a cluster, its usual reads, and a crowd that wants a few keys from then on.

Nodes share nothing but the store, and the crowd is spread evenly over them: so one node with its
share of the store says what fifty do. Each read looks; only what must be fetched becomes a task.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.errors import Refused
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Steps
from sluicegate.lab.baselines.caches import NoCache, TtlCache
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import quantile, timeline
from sluicegate.lab.rigs.read_paths import SERVED, Lookup, ReadPath, ShieldedReads, VersionedStore
from sluicegate.lab.scenario import (
    AS_BARS,
    OVER_TIME,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
    candidate_maker,
)
from sluicegate.lab.world import World, run
from sluicegate.policies.hot_key import COLD, REFRESH, HotKeySettings

BUCKET_US: Final = 100_000
CROWD_US: Final = 100_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FloodRig:
    """The usual reads are `per_s` less the crowd's; the crowd's share goes to `hot_keys` keys."""

    per_s: float = 20_000.0
    hot_keys: int = 5
    hot_share: float = 0.8
    other_keys: int = 50_000
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
        )
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def play(self) -> FloodRun:
        self._set_next()
        await self._over
        await self._world.cancel_others()
        return self._result._replace(queue_peak=self._store.backend.queue_peak)

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
            key = f"usual{int(self._draw() * rig.other_keys)}"
        looked = state, _ = self._path.look(key)
        if hot >= 0:
            result.received[now_us // BUCKET_US] += 1
            if state != COLD and result.noticed_us[hot] == inf:
                result.noticed_us[hot] = now_us
        if state not in SERVED:
            if hot >= 0 and state != REFRESH:
                result.fetched[now_us // BUCKET_US] += 1
            # The loop holds its tasks until they are done.
            self._loop.create_task(self._fetch(key, hot, looked), name="read")
        elif hot < 0:
            self._record_time(now_us, 0)
        self._set_next()

    async def _fetch(self, key: str, hot: int, looked: Lookup) -> None:
        begun_us = self._world.elapsed_us
        now_us = self._world.clock.now_us()
        request = Request(key, arrived_us=now_us, deadline_us=now_us + self._rig.timeout_us)
        try:
            async with asyncio.timeout(self._rig.timeout_us / 1e6):
                await self._path.fetch(request, looked)
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
    before, during = quantile(result.before_us, 0.99), quantile(result.during_us, 0.99)
    return {
        "early_ratio": _early_ratio(rig, result),
        "steady_ratio": _steady_ratio(result, early_us),
        "detect_ms": (max(result.noticed_us) - result.begin_us) / 1e3,
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
    return fetches / sum(result.received[: end_us // BUCKET_US])


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


candidate: Final = candidate_maker(play)


# The form of the system that this is modelled on: noticed at 100, cached for 3 s, fetched when it
# has expired; cold keys are fetched by each reader alone.
MUSSEL: Final = HotKeySettings(hot_min=100, hot_permille=0, ttl_us=3_000_000, jitter=0.0, beta=0.0)


def shielded(**form: Any) -> MakeReadPath:
    """Return a maker of `hot_key` and `coalesce`, with their defaults where `form` says nothing."""
    return lambda world, store: ShieldedReads(
        world.clock, world.chance("shield"), store.get, **form
    )


shield: Final = shielded()
mussel: Final = shielded(hot=MUSSEL, coalesce_cold=False)
without_coalesce: Final = shielded(coalesce=False)
without_hot_key: Final = shielded(hot_key=False)

SCENARIO: Final = Scenario(
    number=10,
    name="hot-keys",
    title="A million reads a second, four fifths of them of five keys",
    why="A shard that everybody asks for is lost, and with it whoever needs its other keys.",
    rigs={"flood": FloodRig()},
    candidates={
        "shield": candidate(shield),
        "mussel": candidate(mussel),
        "without-coalesce": candidate(without_coalesce),
        "without-hot-key": candidate(without_hot_key),
        "ttl-cache": candidate(lambda world, store: TtlCache(world.clock, store.get)),
        "no-cache": candidate(lambda world, store: NoCache(store.get)),
    },
    ours="shield",
    must_fail=("ttl-cache", "without-coalesce", "without-hot-key"),
    goals=(
        Goal(figure="early_ratio", at_most=1e-3),
        Goal(figure="steady_ratio", at_most=1e-4),
        Goal(figure="detect_ms", at_most=50.0),
        Goal(figure="usual_p99", at_most=1.1),
    ),
    measure=measure,
    curves=curves,
    columns=("early_ratio", "steady_ratio", "detect_ms", "usual_p99", "forwarded"),
    plots=(
        PlotSpec(
            "The funnel: reads of hot keys on one node",
            ("received", "not_cached", "forwarded"),
            AS_BARS,
            "reads",
            log_y=True,
        ),
        PlotSpec(
            "What reaches the store for the hot keys",
            ("forwarded_per_s",),
            OVER_TIME,
            "reads a second",
            "seconds",
            log_y=True,
        ),
    ),
    scale="one node of the fifty, at its full 20,000 a second, with a fiftieth of the store",
)
