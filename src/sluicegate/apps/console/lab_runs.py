"""Lab runs: scenarios and drills of `sluicegate lab`, as child processes, and what they print.

What may be run is what `sluicegate lab list` and `sluicegate lab drill list` say; nothing that
comes from a browser becomes a word of a command but a name of that list and two numbers. Bounds:
`AT_ONCE_MAX` children, `KEPT_MAX` runs, `OUTPUT_CHARS_MAX` of each, `RUN_S_MAX` for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Unavailable

AT_ONCE_MAX: Final = 2
KEPT_MAX: Final = 20
OUTPUT_CHARS_MAX: Final = 256 * 1024
RUN_S_MAX: Final = 1_800.0
STOP_S_MAX: Final = 5.0
LIST_S_MAX: Final = 30.0
SEED_MAX: Final = 1_000_000
SEEDS_MAX: Final = 20

SCENARIO: Final = "scenario"
DRILL: Final = "drill"
MET: Final = "met its goals"
_COMMAND: Final = (sys.executable, "-P", "-m", "sluicegate.cli", "lab")
_SCENARIO: Final = re.compile(r"^ *\d+  ([a-z0-9-]+): (.*)$", re.MULTILINE)
_DRILL: Final = re.compile(r"^([a-z0-9-]+)\s{2,}(\S.*)$", re.MULTILINE)


class LabChoice(NamedTuple):
    """Something that can be run."""

    kind: str
    name: str
    title: str


@final
class LabRun:
    """One run: what was asked for, and what it has printed so far."""

    __slots__ = ("_cut", "_output", "began_us", "by", "ended", "number", "seed", "task", "trial")

    def __init__(self, number: int, trial: LabChoice, seed: int, by: str, began_us: int) -> None:
        self.number = number
        self.trial = trial
        self.seed = seed
        self.by = by
        self.began_us = began_us
        self.ended = ""  # how; empty while it runs
        self.task: asyncio.Task[None] | None = None
        self._output = ""
        self._cut = False

    @property
    def output(self) -> str:
        """What it has printed; of very much, the end."""
        return ("(the beginning is cut)\n" if self._cut else "") + self._output

    def end(self, how: str) -> None:
        """Note how it ended; the first who says so is right."""
        self.ended = self.ended or how

    def add(self, text: str) -> None:
        """Keep what it prints."""
        self._output += text
        if len(self._output) > OUTPUT_CHARS_MAX:
            self._output = self._output[-OUTPUT_CHARS_MAX // 2 :]
            self._cut = True


@final
class LabRuns:
    """All runs of this console; they end with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._trials: tuple[LabChoice, ...] = ()
        self._number = 0
        self.runs: dict[int, LabRun] = {}

    async def trials(self) -> Sequence[LabChoice]:
        """What can be run; it is asked for once."""
        if not self._trials:
            scenarios, drills = await asyncio.gather(_printed("list"), _printed("drill", "list"))
            found = [
                LabChoice(SCENARIO, *match.groups()) for match in _SCENARIO.finditer(scenarios)
            ]
            found += [LabChoice(DRILL, *match.groups()) for match in _DRILL.finditer(drills)]
            if not found:
                said = (scenarios + drills)[-200:]
                raise Unavailable("sluicegate lab", said or "it lists nothing")
            self._trials = tuple(found)
        return self._trials

    async def start(self, kind: str, name: str, seed: int, seeds: int, by: str) -> LabRun:
        """Start one; `BadValue` for what is not in the list, or if as many run as may."""
        trial = next((it for it in await self.trials() if (it.kind, it.name) == (kind, name)), None)
        if trial is None:
            raise BadValue("name", name, "choose one of the list")
        if sum(not run.ended for run in self.runs.values()) >= AT_ONCE_MAX:
            remedy = f"{AT_ONCE_MAX} run already; stop one, or wait for it"
            raise BadValue("name", name, remedy)
        self._number += 1
        run = LabRun(self._number, trial, seed, by, self._clock.now_us())
        while len(self.runs) >= KEPT_MAX:
            del self.runs[next(number for number, one in self.runs.items() if one.ended)]
        self.runs[run.number] = run
        if kind == SCENARIO:
            words = ["run", name, "--seed", str(seed), "--runs", str(seeds)]
        else:
            words = ["drill", name, "--seed", str(seed)]
        task = run.task = asyncio.get_running_loop().create_task(self._follow(run, words))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def run(self, number: int) -> LabRun:
        """The run of that number."""
        found = self.runs.get(number)
        if found is None:
            raise BadValue("id", number, "it is not kept any more; choose one of the list")
        return found

    def stop(self, number: int) -> None:
        """End one before its time, with whatever it has started."""
        run = self.run(number)
        run.end("stopped")
        if run.task is not None:
            run.task.cancel()

    async def close(self) -> None:
        """End all that run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, run: LabRun, words: Sequence[str]) -> None:
        """Run it to its end; whatever ends this task ends the child too."""
        with tempfile.TemporaryDirectory(prefix="sluicegate-lab-") as folder:
            process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                *words,
                stdout=PIPE,
                stderr=STDOUT,
                cwd=folder,  # a drill leaves its picture where it runs
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(RUN_S_MAX):
                    await _read(process, run)
                    code = await process.wait()
                run.end(MET if code == 0 else f"ended with {code}")
            except TimeoutError:
                run.end(f"stopped after {RUN_S_MAX:,.0f} s")
            finally:
                await _end(process)
                run.end("stopped")


async def _read(process: Process, run: LabRun) -> None:
    assert process.stdout is not None
    while data := await process.stdout.read(1 << 14):
        run.add(data.decode("utf-8", "replace"))


async def _end(process: Process) -> None:
    """End it and its children, if they are there still."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        _signal(process, signum)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_S_MAX)
            return


def _signal(process: Process, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)  # it leads a session of its own


async def _printed(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(*_COMMAND, *words, stdout=PIPE, stderr=STDOUT)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), LIST_S_MAX)
    except TimeoutError:
        process.kill()
        raise Unavailable("sluicegate lab", f"its list took over {LIST_S_MAX:g} s") from None
    return output.decode("utf-8", "replace")
