"""Pictures of concurrency limits: the limit that each finds while the capacity changes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import fmean, median
from typing import Final, Protocol

from sluicegate.kernels.aimd import Aimd
from sluicegate.kernels.fast_limit import FastLimit
from sluicegate.kernels.gradient2 import Gradient2
from sluicegate.kernels.vegas import Vegas
from tests.kernels.test_place_search import Engine
from tests.site.concepts.panel import Axis, Drawing, Panel, Point, Sheet

WORK_US: Final = 10_000
TIMEOUT_US: Final = 40_000
SPAN_S: Final = 120
UPDATES: Final = 10  # a second
CAPACITIES: Final = ((0, 20), (40, 10), (80, 20))  # from second, places


class Limit(Protocol):
    """What finds the number."""

    limit: int

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int: ...


KINDS: Final[dict[str, Callable[[], Limit]]] = {
    "AIMD": lambda: Aimd(limit_max=80, timeout_us=TIMEOUT_US),
    "Vegas": lambda: Vegas(limit_max=80),
    "Gradient2": lambda: Gradient2(limit_max=80),
    "Fast limit": lambda: FastLimit(limit_max=80),
}


def capacity(second: float) -> int:
    """How many are worked on at once."""
    return next(places for since, places in reversed(CAPACITIES) if second >= since)


def run(limit: Limit) -> tuple[list[Point], list[Point]]:
    """The limit and the latency in milliseconds, of a backend that always has more to do."""
    chance = Random(7)
    limits: list[Point] = []
    latencies: list[Point] = []
    for update in range(SPAN_S * UPDATES):
        second = update / UPDATES
        at_work = limit.limit
        rtt_us = WORK_US * max(1.0, at_work / capacity(second)) * chance.uniform(0.98, 1.02)
        limits.append((second, float(at_work)))
        latencies.append((second, rtt_us / 1_000))
        limit.update(int(rtt_us), at_work, False, chance.random())
    return limits, latencies


def _panel(sheet: Sheet, name: str, limits: list[Point], most: float) -> Panel:
    panel = sheet.panel(name, Axis(SPAN_S, "seconds"), Axis(most))
    places = [(float(since), float(many)) for since, many in CAPACITIES]
    panel.steps("quiet", [*places, (SPAN_S, places[-1][1])], "capacity")
    panel.steps("a", limits, "limit")
    return panel


def _held(limits: list[Point], begin: int) -> float:
    return fmean(limit for second, limit in limits if begin + 20 <= second < begin + 40)


CONDITIONS: Final = (
    "A backend works on 20 units at once, on 10 from second 40 to 80, 10 ms each; there is "
    "always more to do, and the limit hears ten times a second."
)


def _one(name: str, most: float, ending: str) -> Drawing:
    limits, latencies = run(KINDS[name]())
    sheet = Sheet(f"{name}: the limit while the capacity halves and comes back", 150, 110)
    _panel(sheet, "units at work", limits, most)
    panel = sheet.panel("latency", Axis(SPAN_S, "seconds"), Axis(most, "milliseconds"))
    panel.steps("b", latencies, "latency")
    return sheet.drawing(
        f"{CONDITIONS} {name} holds {_held(limits, 0):.0f}, then {_held(limits, 40):.0f}, then "
        f"{_held(limits, 80):.0f} on average{ending}."
    )


def aimd() -> Drawing:
    """It grows until the timeout."""
    return _one("AIMD", 80, ": whatever its timeout of 40 ms allows, four times the capacity")


def vegas() -> Drawing:
    """A small queue, and its probes."""
    return _one("Vegas", 40, "; the dips are its probes")


def gradient2() -> Drawing:
    """A reserve of half as much again."""
    return _one("Gradient2", 40, "; the dips are its probes")


def fast_limit() -> Drawing:
    """The least queue."""
    return _one("Fast limit", 40, "; the dips are its probes")


def concurrency_limit() -> Drawing:
    """All of them."""
    sheet = Sheet("Concurrency limits: four kernels on the same backend", 95, 95, 95, 95)
    held: list[str] = []
    for name, make in KINDS.items():
        limits, _ = run(make())
        _panel(sheet, name, limits, 80 if name == "AIMD" else 40)
        held.append(f"{name} {_held(limits, 0):.0f} and {_held(limits, 40):.0f}")
    return sheet.drawing(
        f"{CONDITIONS} On average they hold, at a capacity of 20 and of 10: {', '.join(held)} "
        "(AIMD with a timeout of 40 ms; the axes differ)."
    )


def place_search() -> Drawing:
    """Eight slots behind sixty-four places: how many are tried, and what work takes."""
    engine = Engine(8, 5_000, 3_000)
    places: list[Point] = []
    took: list[Point] = []
    for tick in range(80):
        engine.run(0.1)
        places.append((tick / 10 + 0.1, float(engine.search.places)))
        # By Little's law: those inside, over what is done.
        took.append(
            (
                tick / 10 + 0.1,
                engine.inflight * 1_000 / engine.done_per_s(tick / 10, tick / 10 + 0.1),
            )
        )
    sheet = Sheet("Place search: an engine that can do eight at once", 120, 120)
    panel = sheet.panel("places", Axis(8, "seconds"), Axis(70))
    panel.bound(8, "what it can use")
    panel.steps("a", places, "places")
    panel = sheet.panel("time inside the engine", Axis(8, "seconds"), Axis(60, "milliseconds"))
    panel.line("a", took, "each unit")
    found = median(y for x, y in places if x > 4)
    later = median(y for x, y in took if x > 4)
    early, late = engine.done_per_s(0, 1), engine.done_per_s(4, 8)
    return sheet.drawing(
        "Twice what the engine can do comes. With 64 places a unit is in it for "
        f"{took[0][1]:.0f} ms, most of that in its line; with the "
        f"{found:.0f} that are found (the median from second 4 on) {later:.0f} ms. It does "
        f"{early:,.0f} a second at first and {late:,.0f} at the end."
    )
