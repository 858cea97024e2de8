"""Hot key: four fifths of all reads are of five keys, into two dispatchers on one engine.

A hot key is to be read about once in its ttl by each dispatcher, however many callers read it; and
callers of other keys must not notice. First the machine's most is measured, with reads of uniform
keys; then half of that is sent twice, of uniform keys and with the five hot ones, so that what the
others feel is compared at the same rate.

How soon a key is noticed has two answers. That of the policy alone is on virtual time at 20,000
reads a second. That of the drill is at the drill's rate, from the first hot read to when a look at
the dispatchers shows all five kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sluicegate.contracts.errors import Unavailable
from sluicegate.lab.arrivals import Poisson, Steps
from sluicegate.lab.charts import Panel
from sluicegate.lab.drills.dispatcher import (
    DrillCaller,
    DrillDispatcher,
    DrillFleet,
    until_us,
    wait_s,
)
from sluicegate.lab.drills.drill import Drill, DrillOutcome, DrillSetting
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad, LoadStream
from sluicegate.lab.drills.record import US, LoadRecord, slice_of
from sluicegate.lab.drills.slots import fill, keys, reads
from sluicegate.lab.random_source import RandomSource
from sluicegate.policies.cache.hot_key import COLD, HotKey, HotKeySettings
from sluicegate.system import now_us

DISPATCHERS: Final = 2
HOT_KEYS: Final = 5
HOT_SHARE: Final = 0.8
KEYS: Final = 20_000
TTL_MS: Final = 3_000
CALLER: Final = DrillCaller("reader")
CALM_US: Final = 1_000_000  # of uniform keys, before the hot ones are hot
MOST_US: Final = 2_500_000
MOST_FROM_US: Final = 1_000_000
MOST_OFFERED_PER_S: Final = 40_000.0
RATE_MAX_PER_S: Final = 20_000.0
SETTLED_US: Final = 1_000_000  # from the first hot read, before forwarded ones are counted
QUOTA_RU: Final = 75_000  # 1.5 times what the most that is ever sent needs, on each
LOOK_S: Final = 0.005
LOOK_S_MAX: Final = 5.0
BIN_US: Final = 500_000
FEED_PER_S: Final = 20_000.0
FEED_US: Final = 2_000_000

FORWARDED_TIMES: Final = 1.3
P99_TIMES: Final = 1.5
DETECTED_MS: Final = 50.0


def policy_detection_ms(seed: int, settings: HotKeySettings | None = None) -> float:
    """On virtual time, at 20,000 reads a second: until reads of all hot keys are served."""
    hot: HotKey[bytes] = HotKey(settings or HotKeySettings())
    random_source = RandomSource(seed)
    draw = random_source.of("detection").draw
    noticed: set[str] = set()
    for at_us in Poisson(FEED_PER_S).instants_us(random_source.of("detection/instants")):
        if at_us > FEED_US:
            break
        is_hot = draw() < HOT_SHARE
        key = f"hot{int(draw() * HOT_KEYS)}" if is_hot else f"k{int(draw() * KEYS)}"
        state, _ = hot.look(key, at_us, draw())
        if is_hot and state != COLD:
            noticed.add(key)
            if len(noticed) == HOT_KEYS:
                return at_us / 1e3
    return float("inf")


def drill(setting: DrillSetting) -> DrillOutcome:
    """The most, then half of it twice."""
    outcome = DrillOutcome()
    detected_ms = max(policy_detection_ms(seed) for seed in range(setting.seed, setting.seed + 3))
    hot_names = [f"drill:hot{number}" for number in range(HOT_KEYS)]
    names = keys("drill", KEYS)
    with DrillFleet((CALLER,)) as fleet:
        dispatchers = fleet.dispatchers(
            DISPATCHERS,
            f"lmdb:{fleet.folder / 'lmdb'}",
            "--quota-ru", str(QUOTA_RU),
            "--hot-ttl-ms", str(TTL_MS),
        )  # fmt: skip
        fill(dispatchers[0], [*names, *hot_names])
        ports = tuple(dispatcher.port for dispatcher in dispatchers)
        setting.progress("hot-key: the most that this machine does")
        most = most_per_s(ports, names)
        rate = min(most / 2, RATE_MAX_PER_S)
        setting.progress(f"hot-key: {rate:,.0f} a second of uniform keys")
        span_us = CALM_US + setting.us()
        background = _stream("background", ports, names, Poisson((1 - HOT_SHARE) * rate))
        streams: tuple[LoadStream, ...] = (
            background,
            _stream("others", ports, names, Poisson(HOT_SHARE * rate)),
        )
        [uniform] = play([DrillLoad(streams=streams, span_us=span_us, seed=setting.seed)])
        setting.progress(f"hot-key: the same, {HOT_SHARE:.0%} of it on {HOT_KEYS} keys")
        hot_rate = HOT_SHARE * rate
        streams = (
            background,
            _stream("others", ports, names, Steps(((0, hot_rate), (CALM_US, 0.0)))),
            _stream("hot", ports, hot_names, Steps(((0, 0.0), (CALM_US, hot_rate)))),
        )
        watch = _ForwardedReads(dispatchers, span_us)
        [hot] = play([DrillLoad(streams=streams, span_us=span_us, seed=setting.seed)], watch.look)
    outcome.void = [*uniform.void_reasons(), *hot.void_reasons()]
    span = {"begin_us": CALM_US + SETTLED_US, "end_us": span_us}
    received = slice_of(hot, "hot", **span)
    calm, beside = slice_of(uniform, "background", **span), slice_of(hot, "background", **span)
    allowed = DISPATCHERS * HOT_KEYS * (span_us - CALM_US - SETTLED_US) / 1e3 / TTL_MS
    calm_ms, p99_ms = calm.p_us(0.99) / 1e3, beside.p_us(0.99) / 1e3
    scaled_ms = DETECTED_MS * max(FEED_PER_S * DISPATCHERS / rate, 1.0) if rate else 0.0
    outcome.figures = {
        "most, a second": most,
        "sent, a second": rate,
        "hot reads received": received.offered,
        "hot reads forwarded": watch.forwarded,
        "forwarded of received": watch.forwarded / max(received.offered, 1),
        "background p50, uniform, ms": calm.p_us(0.5) / 1e3,
        "background p50, hot, ms": beside.p_us(0.5) / 1e3,
        "background p99, uniform, ms": calm_ms,
        "hot reads p99, ms": received.p_us(0.99) / 1e3,
        "hot reads served in time": received.success,
        "background served in time": beside.success,
        "generator busy": hot.busy,
        "noticed in the drill, ms": watch.noticed_ms,
    }
    for who, part in (("hot reads", received), ("background", beside)):
        outcome.add_errors(f"{who}: ", part.errors())
    outcome.add_bar(
        "hot reads forwarded, of dispatchers x keys / ttl",
        watch.forwarded / allowed,
        at_most=FORWARDED_TIMES,
    )
    outcome.add_bar("p99 of the others", p99_ms, at_most=P99_TIMES * calm_ms, unit="ms")
    outcome.add_bar(
        f"noticed by the policy at {FEED_PER_S:,.0f} a second, the worst of three",
        detected_ms,
        at_most=DETECTED_MS,
        unit="ms",
    )
    outcome.add_bar(
        f"noticed by both dispatchers at {rate:,.0f} a second",
        watch.noticed_ms,
        at_most=scaled_ms,
        unit="ms",
    )
    _panels(outcome, uniform, hot, span_us)
    return outcome


def most_per_s(ports: tuple[int, ...], names: list[str]) -> float:
    """Reads a second while as many are under way as the connections hold."""
    stream = replace(
        _stream("most", ports, names, Poisson(MOST_OFFERED_PER_S)), timeout_us=10 * US, depth=4
    )
    [record] = play([DrillLoad(streams=(stream,), span_us=MOST_US, settle_us=200_000)])
    part = slice_of(record, begin_us=0, end_us=MOST_US)
    return part.answered_per_s(MOST_FROM_US, MOST_US)


class _ForwardedReads:
    """Samples the dispatchers while a load is sent."""

    def __init__(self, dispatchers: list[DrillDispatcher], span_us: int) -> None:
        self._dispatchers = dispatchers
        self._span_us = span_us
        self.noticed_ms = float("inf")
        self.forwarded = 0

    def look(self, begin_us: int) -> None:
        """When all are noticed; and how many were forwarded since all had settled."""
        until_us(begin_us + CALM_US)
        left = list(self._dispatchers)
        while left and now_us() < begin_us + CALM_US + LOOK_S_MAX * US:
            left = [one for one in left if len(self._forwarded(one)) < HOT_KEYS]
            if not left:
                self.noticed_ms = (now_us() - begin_us - CALM_US) / 1e3
                break
            wait_s(LOOK_S)
        until_us(begin_us + CALM_US + SETTLED_US)
        before = self._all()
        until_us(begin_us + self._span_us)
        self.forwarded = self._all() - before

    def _all(self) -> int:
        return sum(sum(self._forwarded(one).values()) for one in self._dispatchers)

    def _forwarded(self, dispatcher: DrillDispatcher) -> dict[str, int]:
        """Of each hot key, how many reads went on to the engine."""
        board = dispatcher.state().get("board")
        if not isinstance(board, dict) or "hot" not in board:
            raise Unavailable(dispatcher.process.name, "its state tells nothing of hot keys")
        return {row["key"]: row["forwarded"] for row in board["hot"] if "hot" in row["key"]}


def _stream(
    name: str, ports: tuple[int, ...], names: list[str], arrivals: Poisson | Steps
) -> LoadStream:
    return reads(
        CALLER, ports[0], names, arrivals, name=name, ports=ports, connections=48, depth=64
    )


def _panels(outcome: DrillOutcome, uniform: LoadRecord, hot: LoadRecord, span_us: int) -> None:
    span = {"begin_us": 0, "end_us": span_us}
    calm = slice_of(uniform, "background", **span)
    beside = slice_of(hot, "background", **span)
    outcome.panels = [
        Panel(
            "p99 of the others", "ms", "s",
            {"beside hot keys": beside.times_ms(BIN_US), "uniform keys": calm.times_ms(BIN_US)},
        ),
        Panel(
            "p99 of hot reads", "ms", "s",
            {"hot": slice_of(hot, "hot", **span).times_ms(BIN_US)},
        ),
    ]  # fmt: skip


DRILL: Final = Drill(
    name="hot-key",
    title="Four fifths of all reads on five keys",
    why="A hot key is read once in its ttl, and nobody else notices.",
    seconds=20.0,
    seconds_min=4.0,
    play=drill,
)
