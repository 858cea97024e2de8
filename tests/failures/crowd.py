"""Crowd: many processes that ask one store for the same keys, some of them killed amid it.

A program of its own, `python -m tests.failures.crowd SPEC`, which forks its workers; it kills some
now and then (only its own, by their ids) and puts others in their place. Each worker has a clock
that is wrong by seconds, and writes down what it was admitted in memory that outlives it. All go on
until the one who started them lets them end, and as long as it takes to be admitted what is wanted.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from sluicegate import Algorithm, Limit, Limiter, Rule
from sluicegate.system import now_us
from tests.failures.bounds import Admission
from tests.failures.pressing import clock_us

ENTRY = struct.Struct("<IQQ")  # the key's number, sent, answered
WORD = array("I").itemsize
PATIENCE_S = 60.0  # with a busy machine
ASKS_IN_A_ROW = 50  # of a task, before another has its turn though none had to wait
# One ask, which brings a block; then all at once, first just before a bucket's block dies, then
# long after. In seconds after a full one, so that a window of one ends within the second rest.
WAVES_S = ((0.30, 0.34, 0.40), (1.80, 2.25, 2.31))
WAVES_US = 4_000_000  # from one such pair to the next


@dataclass(frozen=True)
class Spec:
    """Who asks for what, and for how long."""

    url: str
    algorithm: str
    count: int
    period_us: int
    keys: int
    workers: int = 4
    tasks: int = 8
    seconds: float = 2.0  # at least
    pause_s: float = 0.0  # of a task between two asks
    waves: bool = False  # all ask once, rest, and then ask for all they can get; see WAVES_S
    failure: str = "open"
    local_share: float = 1.0
    lease: str | int | None = None
    skew_s: float = 0.0  # each worker's clock is wrong by up to so much
    kills: int = 0
    kill_every_s: float = 0.0
    admitted_min: int = 0  # they go on until the store has admitted so many
    log: bool = False  # every admission with its instants, not only their number
    seed: int = 1

    @property
    def limit(self) -> Limit:
        """The limit of each key."""
        return Limit(self.count, period_us=self.period_us, algorithm=Algorithm(self.algorithm))

    @property
    def rule(self) -> Rule:
        """The limit and its terms."""
        return Rule(
            self.limit, failure=self.failure, local_share=self.local_share, lease=self.lease
        )


@dataclass
class CrowdResult:
    """What all workers were admitted, by the key's number."""

    admitted: list[int]
    degraded: list[int]  # admitted by the failure policy
    log: dict[int, list[Admission]]
    processes: int
    killed: int


class WrongClock:
    """A clock that goes right and stands wrong."""

    def __init__(self, wrong_us: int) -> None:
        self._wrong_us = wrong_us

    def now_us(self) -> int:
        """The wrong instant."""
        return now_us() + self._wrong_us


def key_of(number: int) -> str:
    """The name of a key."""
    return f"key:{number}"


class Crowd:
    """A crowd that asks while the block lasts, and until it has what it wants; then `result`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._folder = tempfile.TemporaryDirectory(prefix="sluicegate-crowd-")
        self._folder_path = Path(self._folder.name)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.failures.crowd", self._folder.name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(self.spec)).encode() + b"\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != b"asking\n":
            raise RuntimeError("the crowd did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.terminate()  # it ends its workers
        try:
            self.wait()
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
            try:
                self.result = self._gather()
            finally:
                self._folder.cleanup()

    def wait(self) -> None:
        """Let them end, and return when all have."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        code = self._process.wait(self.spec.seconds + 2 * PATIENCE_S)
        if code not in (0, -signal.SIGTERM):
            raise RuntimeError(f"the crowd ended with {code}")

    def admitted(self) -> int:
        """How many were admitted up to now, degraded ones included."""
        return sum(map(sum, all_counts(self._folder_path)))

    def _gather(self) -> CrowdResult:
        keys = self.spec.keys
        result = CrowdResult([0] * keys, [0] * keys, {}, 0, 0)
        for counts in all_counts(self._folder_path):
            if len(counts) < 2 * keys:
                continue  # killed before it asked for anything
            result.processes += 1
            for number in range(keys):
                result.admitted[number] += counts[number]
                result.degraded[number] += counts[keys + number]
        for path in self._folder_path.glob("log-*"):
            data = path.read_bytes()
            whole = data[: len(data) // ENTRY.size * ENTRY.size]
            for number, sent_us, answered_us in ENTRY.iter_unpack(whole):
                result.log.setdefault(number, []).append(Admission(sent_us, answered_us))
        with suppress(FileNotFoundError):
            result.killed = int((self._folder_path / "killed").read_text())
        return result


def all_counts(folder: Path) -> Iterator[array[int]]:
    """What each worker was admitted, by the key's number; then the same of degraded ones."""
    for path in folder.glob("counts-*"):
        counts = array("I")
        data = path.read_bytes()
        counts.frombytes(data[: len(data) // WORD * WORD])
        yield counts


# In the crowd's own process.


async def ask(spec: Spec, number: int, folder: Path, began_us: int, ended: mmap.mmap) -> None:
    """One worker, until `ended` is no longer 0."""
    draw = random.Random(f"{spec.seed} {number}")
    clock = WrongClock(int(draw.uniform(-spec.skew_s, spec.skew_s) * 1e6))
    limiter = Limiter(spec.rule, store_url=spec.url, clock=clock)
    size = 2 * spec.keys * WORD
    path = folder / f"counts-{number}"
    path.write_bytes(bytes(size))
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), size)
    counts = memoryview(memory).cast("I")
    log = os.open(folder / f"log-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def ask_once() -> None:
        sent_us = clock_us()
        key = draw.randrange(spec.keys)
        decision = await limiter.atake(key_of(key))
        if decision.allowed:
            counts[key + (spec.keys if decision.degraded else 0)] += 1
            if spec.log and not decision.degraded:
                os.write(log, ENTRY.pack(key, sent_us, clock_us()))

    async def task() -> None:
        calls = 0
        while not ended[0]:
            await ask_once()
            calls += 1
            if spec.pause_s or calls % ASKS_IN_A_ROW == 0:
                await asyncio.sleep(spec.pause_s)

    async def task_in_waves() -> None:
        second_us = -(-began_us // 1_000_000) * 1_000_000
        while not ended[0]:
            for first_s, again_s, until_s in WAVES_S:
                await asyncio.sleep((second_us + first_s * 1e6 - clock_us()) / 1e6)
                await ask_once()
                await asyncio.sleep((second_us + again_s * 1e6 - clock_us()) / 1e6)
                while clock_us() < second_us + until_s * 1e6:
                    await ask_once()
            second_us += WAVES_US

    how = task_in_waves if spec.waves else task
    await asyncio.gather(*(how() for _ in range(spec.tasks)))
    await limiter.aclose()


def begin(spec: Spec, number: int, folder: Path, began_us: int, ended: mmap.mmap) -> int:
    """Fork a worker; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio.run(ask(spec, number, folder, began_us, ended))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def lead(spec: Spec, folder: Path) -> int:
    """Begin the workers, kill some, and wait for all; how many went wrong."""
    draw = random.Random(spec.seed)
    ended = mmap.mmap(-1, 1)  # shared with those who are forked
    began_us = clock_us()
    children = [begin(spec, number, folder, began_us, ended) for number in range(spec.workers)]

    def end(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    killed = 0
    while killed < spec.kills:
        time.sleep(spec.kill_every_s)
        at = draw.randrange(len(children))
        os.kill(children[at], signal.SIGKILL)
        os.waitpid(children[at], 0)
        killed += 1
        children[at] = begin(spec, spec.workers + killed, folder, began_us, ended)
    (folder / "killed").write_text(str(killed))
    sys.stdin.read()  # until it is closed
    end_us = max(clock_us(), began_us + int(spec.seconds * 1e6))
    time.sleep(max(end_us - clock_us(), 0) / 1e6)
    while admitted(spec, folder) < spec.admitted_min and clock_us() < end_us + PATIENCE_S * 1e6:
        time.sleep(0.05)
    ended[0] = 1
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def admitted(spec: Spec, folder: Path) -> int:
    """How many the store has admitted up to now."""
    return sum(sum(counts[: spec.keys]) for counts in all_counts(folder))


def main() -> None:
    """Read what is wanted, and lead."""
    folder = Path(sys.argv[1])
    sys.exit(1 if lead(Spec(**json.loads(sys.stdin.readline())), folder) else 0)


if __name__ == "__main__":
    main()
