"""A bulk upload beside live reads: rows a second over its course, and what the readers notice.

`sluicegate kv` on LMDB, `sluicegate kv load` with a file of 5,000,000 rows, and an open-loop
generator that reads single rows of another table: alone before and afterwards, and in between for
as long as the upload is loaded, committed and folded into its table. The p99 of the reads, from
when each was due, is held against that alone. Rows a second are taken from stretch to stretch, and
must not fall as the upload grows. All processes are real, and share the machine; a stretch in which
the generator was late does not count.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import sluicegate.policies.stack as stack_module
from benchmarks.rounds import Bars, build_of
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.dispatcher import OPERATOR, DrillCaller, DrillDispatcher, DrillFleet
from sluicegate.lab.drills.generator import HOST, play
from sluicegate.lab.drills.load import DrillLoad, LoadStream
from sluicegate.lab.drills.record import RecordSlice, slice_of
from sluicegate.lab.drills.slots import NO_QUOTA, fill, gets, keys

ROWS: Final = 5_000_000
ROWS_A_PARTITION: Final = 100
VALUE: Final = "v" * 64
TABLE: Final = "loaded"
READS_PER_S: Final = 500.0
READER: Final = DrillCaller("reader")
TIMEOUT_US: Final = 5_000_000
WARM_US: Final = 500_000
ALONE: Final = 2  # stretches before, and as many afterwards
LIMIT_S: Final = 600.0
ASK_S: Final = 30.0
P99_TIMES: Final = 1.5
P99_MORE_MS: Final = 2.0
STEADY: Final = 0.75  # of the rate in the first third, what the last third must have
STEADY_FROM: Final = 6  # stretches; of fewer, nothing can be said
LOADING: Final = "loading"
COMMITTING: Final = "committing"
FOLDING: Final = "folding"
SETTLING: Final = "settling"  # all is in the table; some may still read the upload
ALL_DONE: Final = "done"


class Reads(NamedTuple):
    """What readers felt in one stretch, and why it does not count if it does not."""

    p50_ms: float
    p99_ms: float
    success: float
    void: list[str]


class Stood(NamedTuple):
    """How far the upload is: what is being done, since when by our clock, and how many rows."""

    stage: str
    at_s: float
    rows: int


class Stretch(NamedTuple):
    """A stretch beside the upload: how it stood before and after, and the reads in it."""

    before: Stood
    after: Stood
    reads: Reads

    @property
    def stage(self) -> str:
        """What was done in all of it; empty if that changed."""
        return self.before.stage if self.before.stage == self.after.stage else ""

    @property
    def rows_per_s(self) -> float:
        """How fast it went on."""
        passed_s = self.after.at_s - self.before.at_s
        return (self.after.rows - self.before.rows) / passed_s if passed_s else 0.0


def say(text: str) -> None:
    """Print at once: it takes minutes."""
    print(f"  {text}", flush=True)


def write_rows(path: Path, rows: int) -> None:
    """A file as a warehouse would export it."""
    with path.open("w", encoding="ascii", buffering=1 << 20) as file:
        file.write("partition,sort,value\n")
        for begin in range(0, rows, ROWS_A_PARTITION):
            partition = f"p{begin // ROWS_A_PARTITION:08d}"
            count = min(ROWS_A_PARTITION, rows - begin)
            file.write("".join(f"{partition},r{row:04d},{VALUE}\n" for row in range(count)))


def reads(dispatcher: DrillDispatcher, seconds: float) -> Reads:
    """Single rows of a table that is not loaded."""
    stream = LoadStream(
        name=READER.name,
        ports=(dispatcher.port,),
        commands=gets(keys("live", 5_000)),
        arrivals=Poisson(READS_PER_S),
        timeout_us=TIMEOUT_US,
        greeting=READER.greeting,
        connections=100,
    )
    span_us = WARM_US + int(seconds * 1e6)
    [record] = play([DrillLoad(streams=(stream,), span_us=span_us)])
    part: RecordSlice = slice_of(record, begin_us=WARM_US, end_us=span_us)
    return Reads(part.p_us(0.5) / 1e3, part.p_us(0.99) / 1e3, part.success, record.void_reasons())


def loading(dispatcher: DrillDispatcher, path: Path, log: Path) -> subprocess.Popen[bytes]:
    """`sluicegate kv load`, begun. It takes what the others leave of the processors.

    Else it would run on another machine; here it must not be what the readers wait for.
    """
    words = (
        sys.executable, "-m", "sluicegate.cli", "kv", "load", TABLE, str(path),
        "--at", f"http://{HOST}:{dispatcher.port}", "--quiet",
    )  # fmt: skip
    with log.open("wb") as output:
        load = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SLUICEGATE_TOKEN": OPERATOR.token},
        )
    os.sched_setscheduler(load.pid, os.SCHED_IDLE, os.sched_param(0))
    return load


def stood(dispatcher: DrillDispatcher, rows: int, before: Stood) -> Stood:
    """How the upload stands, as the dispatcher tells it."""
    connection = http.client.HTTPConnection(HOST, dispatcher.port, timeout=ASK_S)
    try:
        headers = {"Authorization": f"Bearer {OPERATOR.token}"}
        connection.request("GET", f"/v1/tables/{TABLE}/uploads", headers=headers)
        uploads: list[dict[str, Any]] = json.loads(connection.getresponse().read())["uploads"]
    finally:
        connection.close()
    now_s = time.perf_counter()
    if not uploads or uploads[0]["state"] == "open":
        kept = uploads[0]["rows"] if uploads else 0
        return Stood(COMMITTING if kept == rows else LOADING, now_s, kept)
    state = uploads[0]["state"]
    if state == "done":
        return Stood(ALL_DONE, now_s, rows)
    if state == "sealing":
        return Stood(COMMITTING, now_s, rows)
    # Those up to the partition that the fold is at are in the table.
    folding = dispatcher.state()["keeper"]["folding"]
    if folding and folding[0]["position"] is not None:
        partition = bytes.fromhex(folding[0]["position"][0])
        return Stood(FOLDING, now_s, int(partition[1:]) * ROWS_A_PARTITION)
    if before.stage == SETTLING or (before.stage == FOLDING and before.rows):
        return Stood(SETTLING, now_s, rows)
    return Stood(FOLDING, now_s, 0)


def memory_mb(pid: int) -> float:
    """What a process holds for itself: pages of the engine's map are the system's to take back."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1_024 / 1e6
    return 0.0


def told(name: str, stretches: list[Reads]) -> None:
    """What they felt, over all stretches."""
    say(
        f"reads {name:<10}  p50 {statistics.median(one.p50_ms for one in stretches):6.2f} ms,"
        f" p99 {statistics.median(one.p99_ms for one in stretches):6.2f} ms"
        f" (worst of {len(stretches)}: {max(one.p99_ms for one in stretches):.2f} ms),"
        f" served {min(one.success for one in stretches):.3%}"
    )


def counted(stretches: list[Reads]) -> list[Reads]:
    """Those in which the generator measured the dispatcher and not itself."""
    return [one for one in stretches if not one.void]


class Upload:
    """One upload, from its first row to when it is folded, with reads beside it."""

    def __init__(
        self, dispatcher: DrillDispatcher, rows: int, seconds: float, limit_s: float
    ) -> None:
        self.dispatcher = dispatcher
        self.rows = rows
        self.stretches: list[Stretch] = []
        self.memory_mb = 0.0
        self.loader_mb = 0.0
        self.loaded_s = 0.0
        self.done_s = 0.0
        self._seconds = seconds
        self._limit_s = limit_s

    def run(self, path: Path, log: Path) -> str:
        """Load, and read meanwhile until all is done or time is up; what the loader said."""
        began_s = time.perf_counter()
        before = Stood(LOADING, began_s, 0)
        load = loading(self.dispatcher, path, log)
        try:
            while before.stage != ALL_DONE and before.at_s - began_s < self._limit_s:
                felt = reads(self.dispatcher, self._seconds)
                after = stood(self.dispatcher, self.rows, before)
                stretch = Stretch(before, after, felt)
                self.stretches.append(stretch)
                self.memory_mb = max(self.memory_mb, memory_mb(self.dispatcher.process.pid))
                self.loader_mb = max(self.loader_mb, memory_mb(load.pid))
                self._note(stretch, began_s, ended=load.poll() is not None)
                before = after
                if load.poll():
                    break
        finally:
            if load.poll() is None:
                load.kill()
            load.wait()
        said = log.read_text("utf-8", errors="replace").strip()
        if load.returncode != 0:
            raise RuntimeError(f"the upload failed, or took {self._limit_s:.0f} s: {said}")
        return said.splitlines()[-1]

    def _note(self, stretch: Stretch, began_s: float, *, ended: bool) -> None:
        after = stretch.after
        passed_s = after.at_s - began_s
        if ended and not self.loaded_s:
            self.loaded_s = passed_s
        if after.stage == ALL_DONE:
            self.done_s = passed_s
        rate = f"{stretch.rows_per_s:9,.0f} rows/s" if stretch.stage else " " * 16
        say(
            f"{passed_s:6.0f} s  {after.stage:<10} {after.rows:11,} rows {rate}"
            f"   reads p99 {stretch.reads.p99_ms:6.2f} ms"
            f"   memory {memory_mb(self.dispatcher.process.pid):5.0f} MB"
        )

    def rates(self, stage: str) -> list[float]:
        """Rows a second in each stretch that was all of this."""
        return [one.rows_per_s for one in self.stretches if one.stage == stage]

    def felt(self, stage: str) -> list[Reads]:
        """What was read in stretches that began with this."""
        return counted([one.reads for one in self.stretches if one.before.stage == stage])


def steady(upload: Upload, stage: str, bars: Bars) -> None:
    """Whether the last rows cost what the first did."""
    rates = upload.rates(stage)
    if len(rates) < STEADY_FROM:
        return
    third = len(rates) // 3
    first, last = statistics.median(rates[:third]), statistics.median(rates[-third:])
    bars.check(
        last >= STEADY * first,
        f"{stage}: {last:,.0f} rows/s in the last third, {first:,.0f} in the first,"
        f" at least {STEADY:.2f} of it",
    )


def compare(rows: int, seconds: float, limit_s: float, bars: Bars) -> None:
    """Alone, beside, and what the upload did."""
    with DrillFleet((READER,)) as fleet:
        path, log = fleet.folder / "rows.csv", fleet.folder / "load.log"
        write_rows(path, rows)
        say(f"a file of {rows:,} rows is written, {path.stat().st_size / 1e6:,.0f} MB")
        dispatcher = fleet.dispatcher(
            f"lmdb:{fleet.folder / 'values'}", *NO_QUOTA, "--log", "warning"
        )
        fill(dispatcher, keys("live", 5_000))
        alone = [reads(dispatcher, seconds) for _ in range(ALONE)]
        upload = Upload(dispatcher, rows, seconds, limit_s)
        said = upload.run(path, log)
        alone += [reads(dispatcher, seconds) for _ in range(ALONE)]
    say(said)
    say(f"{rows:,} rows could be seen after {upload.loaded_s:,.0f} s at most")
    for stage in (LOADING, FOLDING):
        rates = upload.rates(stage)
        if rates:
            say(
                f"{stage:<8} {statistics.median(rates):8,.0f} rows/s"
                f" ({min(rates):,.0f} to {max(rates):,.0f} in {len(rates)} stretches)"
            )
    say(f"memory at most: dispatcher {upload.memory_mb:.0f} MB, loader {upload.loader_mb:.0f} MB")
    for reason in sorted(
        {
            reason
            for one in (*alone, *[each.reads for each in upload.stretches])
            for reason in one.void
        }
    ):
        say(f"void, and left out: {reason}")
    bars.check(
        bool(upload.done_s),
        f"all rows are in the table after {upload.done_s:,.0f} s, at most {limit_s:,.0f} s",
    )
    for stage in (LOADING, FOLDING):
        steady(upload, stage, bars)
    judged(counted(alone), upload, bars)


def judged(alone: list[Reads], upload: Upload, bars: Bars) -> None:
    """The p99 beside the upload against that alone."""
    if not alone:
        bars.check(False, "a stretch alone in which the generator could keep up")
        return
    told("alone", alone)
    alone_ms = statistics.median(one.p99_ms for one in alone)
    bound_ms = max(P99_TIMES * alone_ms, alone_ms + P99_MORE_MS)
    for name in (LOADING, FOLDING):
        felt = upload.felt(name)
        if not felt:
            bars.check(False, f"a stretch of {name} in which the generator could keep up")
            continue
        told(name, felt)
        p99_ms = statistics.median(one.p99_ms for one in felt)
        bars.check(
            p99_ms <= bound_ms,
            f"p99 of the reads beside the {name}: {p99_ms:.2f} ms, at most {bound_ms:.2f} ms",
        )


def main() -> None:
    """Print the figures and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a stretch of reads")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for the upload")
    asked = parser.parse_args()
    print(f"sluicegate is {build_of(stack_module.__file__)}, {os.cpu_count()} cores", flush=True)
    bars = Bars()
    compare(asked.rows, asked.seconds, asked.limit, bars)
    bars.exit()


if __name__ == "__main__":
    main()
