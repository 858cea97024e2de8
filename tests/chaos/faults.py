"""The faults of one run: which one begins when, and how long it lasts, follow from a seed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.chaos.proxy import FaultyProxy

LASTS_S = (0.005, 0.5)
# A fault of the program itself: its own loop is held, as by a busy processor.
HELD_S = (0.005, 0.06)
SPINNERS = 2


class Engine(NamedTuple):
    """Stops and continues the servers, if their processes can be."""

    pause: Callable[[], None] | None = None
    resume: Callable[[], None] | None = None


class Faults:
    """Breaks what is between a crowd and its servers, and the servers."""

    def __init__(self, proxy: FaultyProxy | None, engine: Engine, seed: int) -> None:
        self._proxy = proxy
        self._engine = engine
        self._draw = random.Random(seed)
        self.names = ["steal", "hold"]
        if proxy is not None:
            self.names += ["pause", "delay", "pieces", "reset", "deaf"]
        if engine.pause is not None:
            self.names += ["stop", "stop"]
        self._left: list[str] = []

    def next_name(self) -> str:
        """Return the next fault: each comes once in a round."""
        if not self._left:
            self._left = self._draw.sample(self.names, len(self.names))
        return self._left.pop()

    async def strike(self, name: str) -> None:
        """Break, wait, and repair."""
        lasts_s = self._draw.uniform(*LASTS_S)
        if name == "hold":
            for _ in range(self._draw.randrange(1, 6)):
                time.sleep(self._draw.uniform(*HELD_S))
                await asyncio.sleep(self._draw.uniform(0, 0.002))
        elif name == "steal":
            spin = ["sh", "-c", "while :; do :; done"]
            spinners = [subprocess.Popen(spin) for _ in range(SPINNERS)]
            try:
                await asyncio.sleep(lasts_s)
            finally:
                for one in spinners:
                    one.kill()
                    one.wait()
        elif name == "stop":
            await self._stop(lasts_s)
        else:
            await self._break(name, lasts_s)

    async def _stop(self, lasts_s: float) -> None:
        assert self._engine.pause is not None
        assert self._engine.resume is not None
        await asyncio.to_thread(self._engine.pause)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            self._engine.resume()

    async def _break(self, name: str, lasts_s: float) -> None:
        assert self._proxy is not None
        begin = f"delay {self._draw.randrange(5, 200)}" if name == "delay" else name
        end = {"pause": "resume", "delay": "delay 0", "pieces": "whole", "deaf": "hear"}.get(name)
        self._proxy.tell(begin)
        if end is None:
            return
        try:
            await asyncio.sleep(lasts_s)
        finally:
            self._proxy.tell(end)
