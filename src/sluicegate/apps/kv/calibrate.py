"""`sluicegate kv calibrate`: measures an engine, and prints what operations cost on it.

Each operation runs in several shapes, in rounds, so that a change of the machine's pace affects all
alike; the median round counts. Cost is the CPU time of this process for an embedded engine, and the
time until the response for a remote one. It writes into a space of its own and drops it at the end.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.calibration import (
    OVERHEAD_US_DEFAULT,
    PLACES_DEFAULT,
    CostSample,
    calibrate_costs,
)
from sluicegate.apps.kv.chain import BULK, GET, MULTI_GET, PUT, SCAN, SWAP
from sluicegate.apps.kv.weights import weights_text
from sluicegate.contracts.engine import Change, Engine, KeyRange
from sluicegate.contracts.errors import BadValue
from sluicegate.stores.open_engine import open_engine
from sluicegate.system import SystemClock

EXAMPLES: Final = """\
examples:
  sluicegate kv calibrate --engine lmdb:/tmp/kv-trial > weights.toml
  sluicegate kv --engine lmdb:data --weights weights.toml
  sluicegate kv calibrate --engine cassandra://10.0.0.1/trial --seconds 60 --by latency
"""
SPACE: Final = "calibrate"
ROUNDS: Final = 7
ROWS: Final = 1_000
SIZES: Final = (64, 1_024, 16_384)
EMBEDDED: Final = ("memory", "lmdb", "rocksdb")
_TRY_US: Final = 2_000
_MUCH: Final = 100_000


class Shape(NamedTuple):
    """One thing to do: what it is, what it looks at, and doing it `times` times."""

    operation: str
    rows: int
    size_bytes: int
    do: Callable[[int], Awaitable[None]]


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--engine", required=True, metavar="URL", help="as for sluicegate kv")
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="how long it may take (default 10)"
    )
    parser.add_argument(
        "--by",
        choices=("auto", "cpu", "latency"),
        default="auto",
        help="cost is our CPU, or the time it takes; auto: CPU where the engine is embedded",
    )
    parser.add_argument(
        "--places",
        type=int,
        default=PLACES_DEFAULT,
        metavar="N",
        help=f"as sluicegate kv has it (default {PLACES_DEFAULT})",
    )
    parser.add_argument(
        "--overhead-us",
        type=float,
        default=OVERHEAD_US_DEFAULT,
        metavar="US",
        help=f"what the dispatcher spends on any request (default {OVERHEAD_US_DEFAULT:g})",
    )


def run(arguments: Namespace) -> int:
    """Measure, and print."""
    if not 0.1 <= arguments.seconds <= 3_600:
        raise BadValue("--seconds", arguments.seconds, "give 0.1 to 3,600")
    if not 1 <= arguments.places <= 1 << 20:
        raise BadValue("--places", arguments.places, "give 1 or more")
    if not 0 <= arguments.overhead_us <= 1e6:
        raise BadValue("--overhead-us", arguments.overhead_us, "give 0 to 1,000,000")
    samples = asyncio.run(sample(arguments.engine, arguments.seconds, arguments.by))
    calibration = calibrate_costs(samples, arguments.places, arguments.overhead_us)
    comments = {
        name: f"{fit.base_us:.3g} us + {fit.row_us:.3g} a row + {fit.byte_us * 1_024:.3g} a KiB; "
        f"worst {fit.error_max:.0%}"
        for name, fit in calibration.fits.items()
    }
    sys.stdout.write(weights_text(calibration.weights, comments))
    sys.stderr.write(
        f"one RU is {calibration.unit_us:.3g} us; charged and measured cost correlate by rank "
        f"at {calibration.rank:.3f}\n"
    )
    return 0


async def sample(url: str, seconds: float, by: str) -> list[CostSample]:
    """What everything costs on an engine."""
    engine = open_engine(url)
    try:
        connect = getattr(engine, "connect", None)
        if connect is not None:
            await connect()
        by_cpu = by == "cpu" or (by == "auto" and engine.name in EMBEDDED)
        await engine.drop(SPACE)
        work = Work(engine)
        await work.fill()
        samples = await measure(work.shapes(), Meter(by_cpu=by_cpu), seconds)
        await engine.drop(SPACE)
    finally:
        await engine.close()
    return samples


async def measure(shapes: Sequence[Shape], meter: Meter, seconds: float) -> list[CostSample]:
    """What each shape costs."""
    each_us = seconds * 1e6 / len(shapes) / (ROUNDS + 1)
    times = [await _often(shape, meter, each_us) for shape in shapes]
    costs: list[list[float]] = [[] for _ in shapes]
    for done in range(ROUNDS):
        for at, shape in enumerate(shapes):
            began = meter.now_us()
            await shape.do(times[at])
            costs[at].append((meter.now_us() - began) / times[at])
        sys.stderr.write(f"\rround {done + 1} of {ROUNDS}")
        sys.stderr.flush()
    sys.stderr.write("\n")
    return [
        CostSample(shape.operation, shape.rows, shape.size_bytes, max(0.001, median(cost)))
        for shape, cost in zip(shapes, costs, strict=True)
    ]


async def _often(shape: Shape, meter: Meter, each_us: float) -> int:
    """How many times fill the time that one round has for it."""
    times, took = 1, 0.0
    while times < _MUCH:
        began = meter.clock.now_us()
        await shape.do(times)
        took = meter.clock.now_us() - began
        if took >= min(_TRY_US, each_us):
            break
        times *= 2
    return max(1, min(_MUCH, int(times * each_us / max(took, 1.0))))


@final
class Meter:
    """What has been spent so far, by this process or by the clock."""

    __slots__ = ("_by_cpu", "clock")

    def __init__(self, *, by_cpu: bool) -> None:
        self._by_cpu = by_cpu
        self.clock = SystemClock()

    def now_us(self) -> float:
        """Microseconds, since whenever."""
        if not self._by_cpu:
            return float(self.clock.now_us())
        used = resource.getrusage(resource.RUSAGE_SELF)
        return (used.ru_utime + used.ru_stime) * 1e6


@final
class Work:
    """Partitions of rows of each size, and what is done with them."""

    __slots__ = ("_engine", "_number")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._number = 0

    async def fill(self) -> None:
        """Write what is read."""
        for size in SIZES:
            rows = ROWS if size <= 1_024 else 100
            entries = [(_partition(size), _sort(at), bytes(size)) for at in range(rows)]
            await self._engine.load(SPACE, entries)

    def shapes(self) -> list[Shape]:
        """Every operation in its shapes."""
        result = [Shape(GET, 1, size, self._get_work(size)) for size in SIZES]
        result += [
            Shape(MULTI_GET, rows, rows * 64, self._multi_get_work(64, rows)) for rows in (10, 100)
        ]
        result.append(Shape(MULTI_GET, 10, 10_240, self._multi_get_work(1_024, 10)))
        result += [
            Shape(SCAN, rows, rows * size, self._scan_work(size, rows))
            for size, rows in ((64, 10), (64, 100), (64, 1_000), (1_024, 100), (16_384, 10))
        ]
        result += [Shape(PUT, 1, size, self._put_work(1, size)) for size in SIZES]
        result.append(Shape(PUT, 100, 6_400, self._put_work(100, 64)))
        result += [Shape(SWAP, 1, size, self._swap_work(size)) for size in SIZES]
        result += [
            Shape(BULK, rows, rows * size, self._load_work(rows, size))
            for rows, size in ((100, 64), (1_000, 64), (100, 1_024))
        ]
        return result

    def _get_work(self, size: int) -> Callable[[int], Awaitable[None]]:
        return self._multi_get_work(size, 1)

    def _multi_get_work(self, size: int, rows: int) -> Callable[[int], Awaitable[None]]:
        places = [(_partition(size), _sort(at)) for at in range(rows)]

        async def do(times: int) -> None:
            for _ in range(times):
                values = self._engine.read(SPACE, places)
                if isinstance(values, Awaitable):
                    await values

        return do

    def _scan_work(self, size: int, rows: int) -> Callable[[int], Awaitable[None]]:
        span = KeyRange(rows_max=rows, bytes_max=1 << 30)

        async def do(times: int) -> None:
            for _ in range(times):
                values = self._engine.scan(SPACE, _partition(size), span)
                if isinstance(values, Awaitable):
                    await values

        return do

    def _put_work(self, rows: int, size: int) -> Callable[[int], Awaitable[None]]:
        value = bytes(size)

        async def do(times: int) -> None:
            for _ in range(times):
                self._number += 1
                partition = b"put-%d" % (self._number % 1_000)
                changes = [Change(SPACE, partition, _sort(at), value) for at in range(rows)]
                await self._engine.write(changes)

        return do

    def _swap_work(self, size: int) -> Callable[[int], Awaitable[None]]:
        async def do(times: int) -> None:
            before: bytes | None = None
            self._number += 1
            partition = b"swap-%d" % self._number
            for at in range(times):
                value = b"%08d" % at + bytes(size - 8)
                await self._engine.swap(Change(SPACE, partition, b"", value), before)
                before = value

        return do

    def _load_work(self, rows: int, size: int) -> Callable[[int], Awaitable[None]]:
        value = bytes(size)

        async def do(times: int) -> None:
            for _ in range(times):
                self._number += 1
                partition = b"load-%d" % (self._number % 1_000)
                await self._engine.load(
                    SPACE, [(partition, _sort(at), value) for at in range(rows)]
                )

        return do


def _partition(size: int) -> bytes:
    return b"rows-of-%d" % size


def _sort(at: int) -> bytes:
    return b"%08d" % at
