"""Pictures of queues and of what is shed: who waits how long, and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.kernels.adaptive_lifo import AdaptiveLifo, QueueEntry
from sluicegate.kernels.codel import Codel
from sluicegate.kernels.fair_queue import FairQueue, QueuedUnit
from sluicegate.kernels.utilization_shed import UtilizationShed
from tests.site.concepts.panel import Axis, Drawing, Panel, Point, Sheet

SECOND: Final = 1_000_000
PLACES: Final = 4
WORK_US: Final = 20_000  # so 200 a second
PATIENCE_US: Final = 500_000
PERCENT: Final = [(at, str(at)) for at in range(0, 101, 20)]
KINDS: Final = ("a", "c", "e", "b")  # of the classes, CRITICAL first


def overload() -> list[int]:
    """160 a second, and 400 a second from second 2 to 6."""
    chance = Random(3)
    arrivals: list[int] = []
    at = 0.0
    while at < 9 * SECOND:
        arrivals.append(int(at))
        at += chance.expovariate(400 if 2 * SECOND <= at < 6 * SECOND else 160) * SECOND
    return arrivals


class Served:
    """What a queue and its places do with arrivals; `drop` may refuse who leaves the queue."""

    def __init__(
        self,
        arrivals: list[int],
        queue: AdaptiveLifo[int],
        *,
        drop: Callable[[int, int], bool] | None = None,
        patience_us: int = PATIENCE_US,
    ) -> None:
        self.waits: list[Point] = []  # second, milliseconds
        self.ends: list[int] = []
        self.refused = 0
        self._queue = queue
        self._drop = drop
        self._busy: list[int] = []
        lost: list[QueueEntry[int]] = []
        for at in [*arrivals, arrivals[-1] + SECOND]:
            while self._busy and self._busy[0] <= at:
                now = self._busy[0]
                self.ends.append(heappop(self._busy))
                self._start(now, lost)
            queue.push(at, patience_us, at, lost)
            self._start(at, lost)
            self.refused += len(lost)
            lost.clear()

    def _start(self, now: int, lost: list[QueueEntry[int]]) -> None:
        while len(self._busy) < PLACES:
            entry = self._queue.pop(now, lost)
            if entry is None:
                return
            if self._drop is not None and self._drop(entry.waited_us, now):
                self.refused += 1
                continue
            self.waits.append((now / SECOND, entry.waited_us / 1_000))
            heappush(self._busy, now + WORK_US)


def _fifo() -> AdaptiveLifo[int]:
    return AdaptiveLifo(length_max=100_000, standing_us=None)


LOAD: Final = (
    f"Four places of {WORK_US // 1_000} ms each can do 200 units a second; 160 a second come, and "
    "400 a second from second 2 to 6, and give up after 500 ms."
)


def _wait(served: Served) -> float:
    """The median wait in the overload, from its second second on."""
    waits = sorted(wait for second, wait in served.waits if 3 <= second < 6)
    return waits[len(waits) // 2]


def _most(served: Served) -> float:
    """The longest wait in the same time."""
    return max(wait for second, wait in served.waits if 3 <= second < 6)


def _waits_sheet(title: str, name: str, ours: Served, fifo: Served) -> tuple[Sheet, Panel]:
    sheet = Sheet(title, 220)
    panel = sheet.panel(
        "how long who is served has waited", Axis(9, "seconds"), Axis(580, "milliseconds")
    )
    panel.band("quiet", 2, 6, "twice what can be done")
    panel.dots("b", fifo.waits)
    panel.dots("a", ours.waits)
    panel.note(7.05, 420, "first in, first out", "b")
    panel.note(3.9, 190, name, "a")
    return sheet, panel


def codel() -> Drawing:
    """How long who is served has waited, with it and without."""
    fifo = Served(overload(), _fifo())
    judge = Codel()
    judge.fit(WORK_US)
    ours = Served(overload(), _fifo(), drop=judge.drop)
    sheet, _ = _waits_sheet("CoDel: the wait of who is served", "CoDel", ours, fifo)
    return sheet.drawing(
        f"{LOAD} In the overload a plain queue lets everybody it serves wait {_wait(fifo):.0f} ms "
        "(the median), so late that hardly any time is left. With CoDel, fitted to 20 ms of "
        f"work, they wait {_wait(ours):.0f} ms, and up to {_most(ours):.0f} ms each time "
        "that it lets go too early."
    )


def adaptive_lifo() -> Drawing:
    """How long who is served has waited, newest first and oldest first."""
    fifo = Served(overload(), _fifo())
    ours = Served(overload(), AdaptiveLifo(length_max=100_000))
    sheet, _ = _waits_sheet("Adaptive LIFO: the wait of who is served", "adaptive LIFO", ours, fifo)
    return sheet.drawing(
        f"{LOAD} In the overload a plain queue serves everybody after {_wait(fifo):.0f} ms (the "
        f"median), adaptive LIFO after {_wait(ours):.0f} ms: it serves as many, those who have "
        "just come, and the others give up."
    )


def fair_queue() -> Drawing:
    """How long requests that are served have waited, by class."""
    chance = Random(3)
    queue = FairQueue(len(Criticality))
    busy: list[int] = []
    waits: list[list[Point]] = [[] for _ in Criticality]

    def start(now: int) -> None:
        while queue.expire(now) is not None:
            pass
        while len(busy) < PLACES:
            unit = queue.pop(WORK_US, now)
            if unit is None:
                return
            waits[unit.rank].append((now / SECOND, (now - unit.queued_us) / 1_000))
            heappush(busy, now + WORK_US)

    for at in [*overload(), 10 * SECOND]:
        while busy and busy[0] <= at:
            start(heappop(busy))
        rank = 0 if chance.random() < 0.25 else 1
        unit = QueuedUnit(rank, "", at + PATIENCE_US)
        queue.push(unit, WORK_US, at, least_us=WORK_US, slots=PLACES)
        start(at)
    sheet = Sheet("Fair queue: the wait of requests that are served", 220)
    panel = sheet.panel("queue time", Axis(9, "seconds"), Axis(580, "milliseconds"))
    panel.band("quiet", 2, 6, "twice the capacity")
    panel.dots("b", waits[1])
    panel.dots("a", waits[0])
    panel.note(6.3, 520, "DEGRADED", "b")
    panel.note(3.9, 60, "CRITICAL", "a")
    critical = sorted(wait for second, wait in waits[0] if 3 <= second < 6)
    others = sorted(wait for second, wait in waits[1] if 3 <= second < 6)
    return sheet.drawing(
        f"{LOAD} A quarter is CRITICAL. In the overload CRITICAL requests wait "
        f"{critical[len(critical) // 2]:.0f} ms (median) and {critical[-1]:.0f} ms at most. The "
        f"DEGRADED requests that are served wait {others[len(others) // 2]:.0f} ms, as the newest "
        "go first."
    )


def utilization_shed() -> Drawing:
    """The share of each class that is refused, going up and coming down."""
    shed = UtilizationShed()
    up = [at / 200 for at in range(100, 201)]
    lines: list[list[Point]] = [[] for _ in Criticality]
    back: list[list[Point]] = [[] for _ in Criticality]
    for readings, into in ((up, lines), (up[::-1], back)):
        for reading in readings:
            shed.observe(reading)
            for each in Criticality:
                into[each].append((100 * reading, 100 * shed.refusal_share(each)))
    sheet = Sheet("Utilization shed: what is refused of each class", 220)
    panel = sheet.panel(
        "refused share", Axis(100, "% utilization", 50), Axis(112, "percent", 0, PERCENT)
    )
    places = {
        "BULK": (67, 103),
        "BEST_EFFORT": (75, 103),
        "DEGRADED": (91, 103),
        "CRITICAL": (91, 4),
    }
    for each in reversed(Criticality):
        panel.line(KINDS[each], lines[each])
        panel.line(KINDS[each], back[each], thin=True)
        panel.note(*places[each.name], each.name, KINDS[each])
    return sheet.drawing(
        "The default ramps, as utilization rises (thick) and falls again (thin, 5 points later, "
        "so that nothing flutters): each class is refused wholly before the first unit of the "
        "next one, but for the 1% that is admitted below 90%, and CRITICAL never."
    )
