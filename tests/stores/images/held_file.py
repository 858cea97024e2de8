"""A file that a worker waits for: a pipe with a name, so that a test holds a job under way."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path


class HeldFile:
    """`taken` returns once a worker reads it; `give` lets that one have the bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._writer = -1

    async def taken(self) -> None:
        """Wait until somebody has opened it."""
        while True:
            try:
                self._writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads
                await asyncio.sleep(0.005)
            else:
                os.set_blocking(self._writer, True)
                return

    def let_go(self) -> None:
        """Have no more to do with whoever reads it now."""
        os.close(self._writer)

    def give(self, data: bytes) -> None:
        """Let it have the bytes, and the end."""
        os.write(self._writer, data)
        os.close(self._writer)
