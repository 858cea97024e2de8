"""A bounded thread pool against the controlled-delay queue, in one service under uvicorn.

    python -m benchmarks.resilience_server [FILE.svg, which is drawn]

The service of `tests/resilience/server/slots_service.py` can do 100 requests a second. They come at
a multiple of that, each with half a second of patience, from another process that never waits for
an answer. Throughput is what is answered within that time.

The bars: 1.5 times the pool's throughput at twice the capacity; 0.9 of the capacity at 2, 5 and 10
times; health answered within 100 ms at 10 times; no work begun after its deadline.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.rounds import Bars, build_of
from sluicegate.policies import stack as policy_module
from tests.resilience.server import slots_service
from tests.resilience.server.load import Answers, HttpCaller, send, until_ready
from tests.resilience.server.slots_service import CAPACITY
from tests.resilience.service_process import running
from tests.site.concepts.panel import Axis, Sheet

SPAN_S: Final = 4.0
LOADS: Final = (0.8, 2.0, 5.0, 10.0)
KINDS: Final = ("fifo", "pool", "protected")
# How each is drawn, and called.
LINES: Final = {
    "fifo": ("quiet", "unbounded line"),
    "pool": ("b", "thread pool"),
    "protected": ("a", "protect"),
}


class Row(NamedTuple):
    """One kind at one load."""

    goodput: float  # of the capacity
    errors: float
    p95_ms: float
    p99_ms: float
    health_ms_max: float
    begun_late: int


async def measure(port: int, load: float) -> Row:
    """Put the service under this load."""
    caller, watcher = HttpCaller(port), HttpCaller(port)
    await until_ready(caller.ask)
    answers, health = Answers(), Answers()
    await asyncio.gather(
        send(caller.ask, "/work", load * CAPACITY, SPAN_S, answers),
        send(watcher.ask, "/healthz", 20, SPAN_S, health),
    )
    _, body = await watcher.ask("/healthz", 30.0)
    await caller.close()
    await watcher.close()
    worst_s = max(health.in_time, default=0.0) if health.failed == 0 else float("inf")
    return Row(
        len(answers.in_time) / (min(load, 1.0) * CAPACITY * SPAN_S),
        1 - len(answers.in_time) / answers.sent,
        answers.quantile(0.95) * 1e3,
        answers.quantile(0.99) * 1e3,
        worst_s * 1e3,
        json.loads(body)["begun_late"],
    )


def draw(rows: Mapping[tuple[str, float], Row], build: str) -> str:
    """Return the picture: what is answered in time, what is not, and how long it took."""
    sheet = Sheet("A bounded thread pool and the controlled-delay queue, by load", 130, 130, 150)
    load = Axis(LOADS[-1], "times what can be done", ticks=[(at, f"{at:g}") for at in LOADS])
    answered = sheet.panel("answered in time", load, Axis(100, "percent of what can be done"))
    errors = sheet.panel("refused or too late", load, Axis(100, "percent of what is asked"))
    latency = sheet.panel("of what is answered p95, and p99 thin", load, Axis(600, "milliseconds"))
    for kind, (line, name) in LINES.items():
        of = {at: rows[kind, at] for at in LOADS}
        answered.line(line, [(at, 100 * row.goodput) for at, row in of.items()], name)
        errors.line(line, [(at, 100 * row.errors) for at, row in of.items()], name)
        if min(row.goodput for row in of.values()) > 0:
            latency.line(line, [(at, row.p95_ms) for at, row in of.items()], name)
            latency.line(line, [(at, row.p99_ms) for at, row in of.items()], thin=True)
    return sheet.drawing(
        f"One real service for 100 requests a second, callers with 500 ms of patience, "
        f"{SPAN_S:g} s a load, one run; {build}"
    ).svg


def main() -> None:
    """Measure, print, and draw where a file is named."""
    bars = Bars()
    print(f"Goodput is a part of what can be done; {build_of(policy_module.__file__)}")
    print("  load  kind       goodput  errors  p95 ms  p99 ms  health max ms")
    rows: dict[tuple[str, float], Row] = {}
    for load in LOADS:
        for kind in KINDS:
            with running(slots_service.__name__, "asgi", kind) as port:
                row = rows[kind, load] = asyncio.run(measure(port, load))
            print(
                f"  {load:4.1f}  {kind:<9}  {row.goodput:7.3f}  {row.errors:6.3f}"
                f"  {row.p95_ms:6.0f}  {row.p99_ms:6.0f}  {row.health_ms_max:13.0f}"
            )
    ours, pool = rows["protected", 2.0].goodput, rows["pool", 2.0].goodput
    bars.check(ours >= 1.5 * pool, f"protected answers {ours:.2f} at 2 x, the pool {pool:.2f}")
    for load in LOADS[1:]:
        row = rows["protected", load]
        bars.check(row.goodput >= 0.9, f"protected answers {row.goodput:.2f} at {load:.0f} x")
        bars.check(row.begun_late == 0, f"{row.begun_late} begun late at {load:.0f} x")
    worst = rows["protected", 10.0].health_ms_max
    bars.check(worst <= 100, f"health answers within {worst:.0f} ms at 10 x")
    for file in sys.argv[1:2]:
        Path(file).write_text(draw(rows, build_of(policy_module.__file__)), encoding="utf-8")
    bars.exit()


if __name__ == "__main__":
    main()
