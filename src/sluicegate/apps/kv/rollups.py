"""Rollups: each minute, what callers used since the last one is written to the usage files."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, final

from sluicegate.apps.kv.usage import CallerTotals, CallerUsage
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.telemetry.usage_files import MINUTE_US, UsageMinute, UsageWriter

_NOTHING: Final = CallerTotals(0, 0, 0, 0, 0)
_log: Final = logging.getLogger("sluicegate.kv")


@final
class Rollups:
    """Differences of counts, by the minute."""

    __slots__ = ("_before", "_clock", "_usage", "_writer", "failures")

    def __init__(self, usage: CallerUsage, writer: UsageWriter, clock: Clock) -> None:
        self._usage = usage
        self._writer = writer
        self._clock = clock
        self._before: dict[str, CallerTotals] = {}
        self.failures = 0

    def roll(self, minute: int) -> None:
        """What was used since the last roll was used in this minute."""
        now = self._usage.now()
        used: dict[str, UsageMinute] = {}
        for caller, counts in now.items():
            before = self._before.get(caller, _NOTHING)
            spent = -(-(counts.mru - before.mru) // 1_000)
            refused = -(-(counts.refused_mru - before.refused_mru) // 1_000)
            if spent or refused:
                used[caller] = UsageMinute(spent + refused, refused)
        self._before = now
        try:
            self._writer.write(minute, used)
        except Unavailable as error:
            self.failures += 1
            _log.warning("%s; what was used in a minute is not kept", error)

    async def run(self) -> None:
        """At the end of every minute until cancelled, and of the one that was begun then."""
        try:
            while True:
                now_us = self._clock.now_us()
                await asyncio.sleep((MINUTE_US - now_us % MINUTE_US) / 1e6)
                self.roll(now_us // MINUTE_US)
        finally:
            self.roll(self._clock.now_us() // MINUTE_US)
