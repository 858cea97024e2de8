"""Children: processes of ours that live no longer than we do.

A child's standard input is a pipe that we hold; when it closes, because we closed it or were
killed, the child ends by itself (`child.py`). It stands in a session of its own, so a Ctrl-C in the
terminal reaches us alone, and we end it by its own process id.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Final, Self, final

STOP_S_MAX: Final = 2.0
LINE_CHARS_MAX: Final = 200
_CHUNK_BYTES: Final = 4_096


@final
class ChildProcess:
    """The parent's end: the last lines that the child wrote, and how it ended."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.printed = ""  # the last line of its standard output
        self.complaint = ""  # and of its standard error
        self._readers = [
            asyncio.create_task(_read(process.stdout, self._on_printed)),
            asyncio.create_task(_read(process.stderr, self._on_complaint)),
        ]

    @classmethod
    async def start(cls, module: str, *words: str) -> Self:
        """Run a module of ours with these words."""
        # -P: what lies in the folder where we were started is not to be imported by mistake.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-u", "-m", module, *words),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.returncode

    async def first_line(self) -> str:
        """Return its first line of output; empty if it ends before that."""
        while not self.printed and self.code is None:
            await asyncio.sleep(_LOOK_S)
        return self.printed

    def write(self, text: str) -> None:
        """Write to its standard input, if it still lives."""
        assert self._process.stdin is not None
        if self.code is None:
            self._process.stdin.write(text.encode())

    async def stop(self, stop_s: float = STOP_S_MAX) -> None:
        """End it, and return when it has ended."""
        for end in (self._process.terminate, self._process.kill):
            with contextlib.suppress(ProcessLookupError):
                end()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), stop_s)
                break
        await asyncio.gather(*self._readers)

    def _on_printed(self, line: str) -> None:
        self.printed = line

    def _on_complaint(self, line: str) -> None:
        self.complaint = line


_LOOK_S: Final = 0.02


async def stop_all(children: Sequence[ChildProcess]) -> None:
    """End all at the same time."""
    await asyncio.gather(*(child.stop() for child in children))


async def _read(stream: asyncio.StreamReader | None, on_line: Callable[[str], None]) -> None:
    """Hand over each line that says something; of a long one, the end."""
    assert stream is not None
    rest = ""
    while chunk := await stream.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
        for line in lines:
            if line.strip():
                on_line(line[-LINE_CHARS_MAX:])
        rest = rest[-LINE_CHARS_MAX:]
    if rest.strip():
        on_line(rest)
