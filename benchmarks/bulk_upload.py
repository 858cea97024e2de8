"""A bulk upload beside live reads: rows a second, and what the readers notice.

`headgate kv` on LMDB, `headgate kv load` with a file of 5,000,000 rows, and an open-loop generator
that reads single rows of another table: alone first, then for as long as the upload takes. The p99
of the reads, from when each was due, is held against that alone. All processes are real, and share
the machine; the generator must not have been late.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import headgate.policies.stack as stack_module
from benchmarks.rounds import Bars, build_of
from headgate.lab.arrivals import Poisson
from headgate.lab.drills.dispatcher import OPERATOR, Caller, Dispatcher, Fleet
from headgate.lab.drills.generator import play
from headgate.lab.drills.load import Load, Stream
from headgate.lab.drills.record import Part, whole
from headgate.lab.drills.slots import NO_QUOTA, fill, gets, keys

ROWS: Final = 5_000_000
ROWS_A_PARTITION: Final = 100
VALUE: Final = "v" * 64
READS_PER_S: Final = 500.0
READER: Final = Caller("reader")
TIMEOUT_US: Final = 5_000_000
WARM_US: Final = 500_000
P99_TIMES: Final = 1.5
P99_MORE_MS: Final = 2.0


class Reads(NamedTuple):
    """What readers felt in one stretch, and why it does not count if it does not."""

    p50_ms: float
    p99_ms: float
    success: float
    void: list[str]


def write_rows(path: Path, rows: int) -> None:
    """A file as a warehouse would export it."""
    with path.open("w", encoding="ascii", buffering=1 << 20) as file:
        file.write("partition,sort,value\n")
        for begin in range(0, rows, ROWS_A_PARTITION):
            partition = f"p{begin // ROWS_A_PARTITION:08d}"
            count = min(ROWS_A_PARTITION, rows - begin)
            file.write("".join(f"{partition},r{row:04d},{VALUE}\n" for row in range(count)))


def reads(dispatcher: Dispatcher, seconds: float) -> Reads:
    """Single rows of a table that is not loaded."""
    stream = Stream(
        name=READER.name,
        ports=(dispatcher.port,),
        commands=gets(keys("live", 5_000)),
        arrivals=Poisson(READS_PER_S),
        timeout_us=TIMEOUT_US,
        hello=READER.hello,
        connections=100,
    )
    span_us = WARM_US + int(seconds * 1e6)
    [record] = play([Load(streams=(stream,), span_us=span_us)])
    part: Part = whole(record, begin_us=WARM_US, end_us=span_us)
    return Reads(part.p_us(0.5) / 1e3, part.p_us(0.99) / 1e3, part.success, record.void())


def loading(dispatcher: Dispatcher, path: Path, log: Path) -> subprocess.Popen[bytes]:
    """`headgate kv load`, begun."""
    words = (
        sys.executable, "-m", "headgate.cli", "kv", "load", "loaded", str(path),
        "--at", f"http://127.0.0.1:{dispatcher.port}", "--quiet",
    )  # fmt: skip
    with log.open("wb") as output:
        return subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HEADGATE_TOKEN": OPERATOR.token},
        )


def told(name: str, stretches: list[Reads]) -> None:
    """What they felt, over all stretches."""
    print(
        f"  reads {name:<6}  p50 {statistics.median(one.p50_ms for one in stretches):6.2f} ms,"
        f" p99 {statistics.median(one.p99_ms for one in stretches):6.2f} ms"
        f" (worst of {len(stretches)}: {max(one.p99_ms for one in stretches):.2f} ms),"
        f" served {min(one.success for one in stretches):.3%}"
    )


def counted(stretches: list[Reads]) -> list[Reads]:
    """Those in which the generator measured the dispatcher and not itself."""
    return [one for one in stretches if not one.void]


def compare(rows: int, seconds: float, bars: Bars) -> None:
    """Alone, beside, and what the upload did."""
    with Fleet((READER,)) as fleet:
        path, log = fleet.folder / "rows.csv", fleet.folder / "load.log"
        write_rows(path, rows)
        dispatcher = fleet.dispatcher(
            f"lmdb:{fleet.folder / 'values'}", *NO_QUOTA, "--log", "warning"
        )
        fill(dispatcher, keys("live", 5_000))
        alone = [reads(dispatcher, seconds) for _ in range(2)]
        began = time.perf_counter()
        load = loading(dispatcher, path, log)
        beside = []
        try:
            while load.poll() is None:
                beside.append(reads(dispatcher, seconds))
            took_s = time.perf_counter() - began
            # The last stretch went on when the upload had ended.
            beside = beside[:-1] or beside
        finally:
            load.kill()
            load.wait()
        said = log.read_text("utf-8", errors="replace").strip()
        memory_mb = dispatcher.process.memory_bytes() / 1e6
    if load.returncode != 0:
        raise RuntimeError(f"the upload failed: {said}")
    print(f"  {said.splitlines()[-1]}")
    print(f"  {rows:,} rows in {took_s:,.0f} s: {rows / took_s:,.0f} rows/s")
    print(f"  memory of the dispatcher at its end: {memory_mb:.0f} MB")
    for reason in sorted({reason for one in (*alone, *beside) for reason in one.void}):
        print(f"  void, and left out: {reason}")
    alone, beside = counted(alone), counted(beside)
    if not alone or not beside:
        bars.check(False, "a stretch in which the generator could keep up")
        return
    told("alone", alone)
    told("beside", beside)
    alone_ms = statistics.median(one.p99_ms for one in alone)
    beside_ms = statistics.median(one.p99_ms for one in beside)
    bound_ms = max(P99_TIMES * alone_ms, alone_ms + P99_MORE_MS)
    bars.check(
        beside_ms <= bound_ms,
        f"p99 of the reads beside the upload: {beside_ms:.2f} ms, at most {bound_ms:.2f} ms",
    )


def main() -> None:
    """Print the figures and the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a stretch of reads")
    asked = parser.parse_args()
    print(f"headgate is {build_of(stack_module.__file__)}, {os.cpu_count()} cores")
    bars = Bars()
    compare(asked.rows, asked.seconds, bars)
    bars.exit()


if __name__ == "__main__":
    main()
