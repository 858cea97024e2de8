"""Picture of the found limit: how many are in flight, and how long they take."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from statistics import median
from typing import Final

from sluicegate.kernels.found_limit import LIMIT_MAX, FoundLimit
from tests.site.concepts.panel import Axis, Drawing, Point, Sheet

SECOND: Final = 1_000_000
WORKERS: Final = 8
WORK_US: Final = 50_000  # so 160 a second
PATIENCE_US: Final = 1_000_000
SPAN_S: Final = 40
STEPS: Final = ((0, 120.0), (10, 320.0), (30, 120.0))  # from second, arrivals a second


def found_limit() -> Drawing:
    """A backend of eight workers, with twice its capacity from second 10 to 30."""
    chance = Random(3)
    found = FoundLimit()
    at, arrivals = 0.0, []
    while at < SPAN_S:
        rate = next(rate for since, rate in reversed(STEPS) if at >= since)
        at += chance.expovariate(rate)
        arrivals.append(int(at * SECOND))
    waiting: list[int] = []
    backend: list[tuple[int, int, int, int]] = []  # end, sent, in flight then, window
    free = [0] * WORKERS
    born: dict[tuple[int, int], int] = {}
    limits: list[Point] = []
    times: list[Point] = []

    def send(born_us: int, now_us: int) -> None:
        begins_us = max(now_us, heappop(free))
        end_us = begins_us + round(WORK_US * chance.expovariate(1.0))
        heappush(free, end_us)
        window = found.send(now_us, born_us + PATIENCE_US, PATIENCE_US)
        heappush(backend, (end_us, now_us, len(backend) + 1, window))
        born[end_us, now_us] = born_us

    def end_until(now_us: int) -> None:
        while backend and backend[0][0] <= now_us:
            end_us, sent_us, inflight, window = heappop(backend)
            took_us = end_us - sent_us
            late = end_us - born.pop((end_us, sent_us)) > PATIENCE_US
            times.append((end_us / SECOND, took_us / 1_000))
            queued = bool(waiting)
            found.record(window, took_us, end_us, inflight, WORK_US, late, queued)
            while waiting and len(backend) < found.limit:
                first_us = waiting.pop()
                if end_us - first_us < PATIENCE_US - WORK_US:
                    send(first_us, end_us)
            limits.append((end_us / SECOND, float(len(backend))))

    for now_us in arrivals:
        end_until(now_us)
        if len(backend) < found.limit:
            send(now_us, now_us)
        else:
            waiting.append(now_us)
    assert found.limit <= LIMIT_MAX
    sheet = Sheet("Found limit: a backend of eight workers in an overload", 130, 130)
    panel = sheet.panel("in flight", Axis(SPAN_S, "seconds"), Axis(200))
    panel.band("quiet", 10, 30, "twice the capacity")
    panel.steps("a", limits[::7], "in flight")
    panel = sheet.panel("time at the backend", Axis(SPAN_S, "seconds"), Axis(1_300, "ms"))
    panel.dots("b", times[::7])
    before = median(took for second, took in times if second < 10)
    most = max(took for second, took in times if second < 20)
    during = median(took for second, took in times if 20 <= second < 30)
    return sheet.drawing(
        "Eight workers need 50 ms a request on average. 120 requests a second arrive, and 320 from "
        "second 10 to 30; callers wait for a second. Before the overload a request takes "
        f"{before:.0f} ms at the backend (median) and nothing is limited. The overload is noticed "
        f"at {most:,.0f} ms; then the limit holds {during:.0f} ms."
    )
