"""Overload: two, five and ten times of what the engine can do, in four classes.

CRITICAL work alone is half of the capacity, and must not suffer. The others are the rest of it and
all that is too much; what there is left goes to the higher of them first. Refusals come before the
deadline, and the dispatcher holds no more memory under more load.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.lab.arrivals import Steps
from sluicegate.lab.charts import Panel
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher, DrillFleet, until_us
from sluicegate.lab.drills.drill import Drill, DrillOutcome, DrillSetting
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad, LoadStream
from sluicegate.lab.drills.record import LoadRecord, RecordSlice, slice_of
from sluicegate.lab.drills.slots import (
    CAPACITY_PER_S,
    FLAGS,
    TIMEOUT_US,
    engine,
    fill,
    keys,
    quota_ru,
    reads,
)

TIMES: Final = (2, 5, 10)
CRITICAL_SHARE: Final = 0.5  # of the capacity
CALM_US: Final = 1_500_000  # of the same callers at half of the capacity, as there is any day
WARM_US: Final = CALM_US + 1_000_000
LOOK_US: Final = 250_000
CALLERS: Final = (
    DrillCaller("checkout", "CRITICAL"),
    DrillCaller("search", "DEGRADED"),
    DrillCaller("feed", "BEST_EFFORT"),
    DrillCaller("export", "BULK"),
)
CALM_LOAD: Final = 0.5
OTHERS_SHARES: Final = (0.4, 0.3, 0.3)  # of what is not CRITICAL

GOODPUT_MIN: Final = 0.95
CRITICAL_MIN: Final = 0.999
REFUSED_MS_MAX: Final = TIMEOUT_US / 1e3  # the deadline: until then a slot may come free
MEMORY_MAX: Final = 1.1  # at its most, of what it was half way
BUSY_NOTED: Final = 0.9


class _OverloadRun(NamedTuple):
    """One load."""

    record: LoadRecord
    part: RecordSlice  # after the warm-up
    critical: RecordSlice
    memory: list[tuple[float, float]]  # MB over seconds
    busy: float  # the dispatcher's CPU time, as a share of the time it took

    @property
    def grown(self) -> float:
        """Its memory at its most in the last half, in terms of that when the half began."""
        half_us = (self.part.begin_us + self.part.end_us) // 2
        after = [mb for at_s, mb in self.memory if at_s * 1e6 >= half_us]
        return max(after) / after[0] if after and after[0] else 1.0


def rates(times: float) -> dict[DrillCaller, float]:
    """Return what each caller asks for a second, so many times the capacity together."""
    critical = CRITICAL_SHARE * CAPACITY_PER_S
    rest = times * CAPACITY_PER_S - critical
    return dict(zip(CALLERS, (critical, *(share * rest for share in OTHERS_SHARES)), strict=True))


def streams(port: int, times: float) -> tuple[LoadStream, ...]:
    """Return four callers, each of a class, who send so many times the capacity together."""
    return tuple(
        reads(
            caller,
            port,
            keys("drill"),
            Steps(((0, CALM_LOAD * CAPACITY_PER_S * share / 2), (CALM_US, rate))),
            connections=120,
        )
        for (caller, rate), share in zip(rates(times).items(), (1.0, *OTHERS_SHARES), strict=True)
    )


def run_load(dispatcher: DrillDispatcher, setting: DrillSetting, times: float) -> _OverloadRun:
    """One load on one dispatcher."""
    load = DrillLoad(
        streams=streams(dispatcher.port, times),
        span_us=WARM_US + setting.us(),
        seed=setting.seed,
    )
    memory: list[tuple[float, float]] = []
    cpu_s: list[float] = []

    def look(begin_us: int) -> None:
        for at_us in range(WARM_US // 2, load.span_us, LOOK_US):
            until_us(begin_us + at_us)
            memory.append((at_us / 1e6, dispatcher.process.memory_bytes() / 1e6))
            cpu_s.append(dispatcher.process.cpu_s())

    [record] = play([load], look)
    span = {"begin_us": WARM_US, "end_us": load.span_us}
    part, critical = slice_of(record, **span), slice_of(record, CALLERS[0].name, **span)
    busy = (cpu_s[-1] - cpu_s[0]) * 1e6 / (len(cpu_s) * LOOK_US)
    return _OverloadRun(record, part, critical, memory, busy)


def drill(setting: DrillSetting) -> DrillOutcome:
    """All loads, each on a dispatcher of its own."""
    outcome = DrillOutcome()
    outcome.figures["capacity, a second"] = CAPACITY_PER_S
    goodputs, criticals, refused, memories = {}, {}, {}, {}
    for times in TIMES:
        setting.progress(f"overload: {times} times the capacity")
        quotas = {one.name: quota_ru(per_s) for one, per_s in rates(times).items()}
        with DrillFleet(CALLERS, quotas) as fleet:
            dispatcher = fleet.dispatcher(engine(), *FLAGS)
            fill(dispatcher, keys("drill"))
            found = run_load(dispatcher, setting, times)
            refusals = dispatcher.refusals()
        outcome.void += [f"{times}x: {reason}" for reason in found.record.void_reasons()]
        _bars(outcome, found, times)
        outcome.add_errors(f"{times}x: ", refusals)
        goodputs[times] = found.part.good_per_s
        criticals[times] = found.critical.success
        refused[times] = found.part.refused_p_us(0.99) / 1e3
        memories[f"{times}x"] = found.memory
    outcome.panels = [
        Panel(
            "Served in time", "a second", "times the capacity",
            {"served": list(goodputs.items())}, bound=GOODPUT_MIN * CAPACITY_PER_S,
        ),
        Panel(
            "CRITICAL served in time", "of what was asked", "times the capacity",
            {"critical": list(criticals.items())}, bound=CRITICAL_MIN,
        ),
        Panel(
            "Time to a refusal, p99", "ms", "times the capacity",
            {"refused": list(refused.items())}, bound=REFUSED_MS_MAX,
        ),
        Panel("Memory of the dispatcher", "MB", "s", memories),
    ]  # fmt: skip
    return outcome


def _bars(outcome: DrillOutcome, found: _OverloadRun, times: int) -> None:
    part, figures = found.part, outcome.figures
    figures[f"{times}x: offered a second"] = part.offered * 1e6 / (part.end_us - part.begin_us)
    figures[f"{times}x: served in time a second"] = part.good_per_s
    figures[f"{times}x: p99 of those, ms"] = part.p_us(0.99) / 1e3
    figures[f"{times}x: generator busy"] = found.record.busy
    figures[f"{times}x: dispatcher busy"] = found.busy
    if found.busy > BUSY_NOTED:
        outcome.notes.append(
            f"{times}x: the dispatcher had no processor left; its engine was not what was short"
        )
    outcome.add_errors(f"{times}x: ", part.errors())
    outcome.add_bar(
        f"{times}x: goodput, of capacity",
        part.good_per_s / CAPACITY_PER_S,
        at_least=GOODPUT_MIN,
        unit="%",
    )
    outcome.add_bar(
        f"{times}x: CRITICAL served", found.critical.success, at_least=CRITICAL_MIN, unit="%"
    )
    outcome.add_bar(
        f"{times}x: time to a refusal, p99",
        part.refused_p_us(0.99) / 1e3,
        at_most=REFUSED_MS_MAX,
        unit="ms",
    )
    outcome.add_bar(
        f"{times}x: memory at its most, of that half way", found.grown, at_most=MEMORY_MAX
    )


DRILL: Final = Drill(
    name="overload",
    title="Two, five and ten times what the engine can do",
    why="The engine stays busy, CRITICAL is served, and refusals come before the deadline.",
    seconds=8.0,
    seconds_min=2.0,
    play=drill,
)
