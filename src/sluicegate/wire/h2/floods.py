"""Floods: how much of what carries nothing a peer may send in a second.

A count in a second's window that begins with what is counted. A peer that sends at the edge of two
windows gets through at most twice the bound, which is all that is wanted here: the bound keeps work
finite, it measures nothing.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.wire.h2.frames import ENHANCE_YOUR_CALM, ConnectionFault
from sluicegate.wire.h2.settings import H2Settings

_SECOND_US: Final = 1_000_000


@final
class FloodCounter:
    """One kind of frame or work, counted; `name` is the setting that bounds it."""

    __slots__ = ("began_us", "count", "name", "per_s_max", "responses_counted")

    def __init__(self, name: str, per_s_max: int) -> None:
        self.name = name
        self.per_s_max = per_s_max
        self.count = 0
        self.began_us = 0
        self.responses_counted = 0

    def add(self, size: int, now_us: int, responses: int) -> bool:
        """Count so many; `responses` calls so far, each of which lets the count start anew.

        Return whether that is beyond the bound.
        """
        if responses != self.responses_counted or now_us - self.began_us >= _SECOND_US:
            self.responses_counted = responses
            self.began_us = now_us
            self.count = 0
        self.count += size
        return self.count > self.per_s_max

    def count_one(self, now_us: int, responses: int) -> None:
        """Count one likewise. Raises `ConnectionFault` beyond the bound."""
        if self.add(1, now_us, responses):
            raise ConnectionFault(ENHANCE_YOUR_CALM, f"more than {self.name}", self.name)


@final
class Floods:
    """All that one connection counts by the second; each bound is the setting of its name."""

    __slots__ = ("empty", "header_bytes", "pings", "resets", "settings", "updates")

    def __init__(self, settings: H2Settings) -> None:
        self.resets = FloodCounter("resets_per_s_max", settings.resets_per_s_max)
        # Values that differ with each request are honest, so who sends many is slowed, never ended.
        self.header_bytes = FloodCounter("header_bytes_per_s_max", settings.header_bytes_per_s_max)
        self.settings = FloodCounter("settings_per_s_max", settings.settings_per_s_max)
        self.pings = FloodCounter("pings_per_s_max", settings.pings_per_s_max)
        self.empty = FloodCounter("empty_frames_per_s_max", settings.empty_frames_per_s_max)
        self.updates = FloodCounter("window_updates_per_s_max", settings.window_updates_per_s_max)
