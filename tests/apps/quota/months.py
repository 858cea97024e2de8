"""Months of usage for these tests: a curve, written as the usage files of two nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from sluicegate.apps.quota.series import Caller, Month, TuneSettings, callers_of
from sluicegate.telemetry.usage_files import DAY_MINUTES, UsageMinute, UsageWriter

# A Monday: the epoch was a Thursday, and 20,003 is 4 more than a multiple of 7.
MONDAY = 20_003
DAYS = 30
KEPT_DAYS = 400

# What was asked for in an hour's busiest minute, as RU a second, by day and hour of the month.
Curve: TypeAlias = Callable[[int, int], int]


def write_month(
    folder: Path,
    curves: Mapping[str, Curve],
    *,
    first_day: int = MONDAY,
    days: int = DAYS,
    quota: int = 1 << 40,
) -> None:
    """A busy minute of each hour, and at noon one of half as much; half of it on either node."""
    nodes = [UsageWriter(str(folder / node), node, days=KEPT_DAYS) for node in ("a", "b")]
    for day in range(days):
        for hour in range(24):
            busy, half = {}, {}
            for name, curve in curves.items():
                if rate := curve(day, hour):
                    refused = max(0, rate - quota)
                    busy[name] = UsageMinute(30 * rate, 30 * refused)
                    half[name] = UsageMinute(15 * rate, 0)
            minute = (first_day + day) * DAY_MINUTES + 60 * hour
            for node in nodes:
                if hour == 12:
                    node.write(minute + 7, half)
                node.write(minute + 42, busy)


def folders(folder: Path) -> list[str]:
    """Those of the two nodes."""
    return [str(folder / "a"), str(folder / "b")]


def tuned(
    folder: Path,
    current: Mapping[str, int] | None = None,
    default: int | None = None,
    *,
    days: int = DAYS,
    wishes: TuneSettings | None = None,
) -> dict[str, Caller]:
    """What is proposed to each caller by the month in this folder."""
    month = Month.read(folders(folder), MONDAY, days)
    callers = callers_of(month, current or {}, default, wishes or TuneSettings())
    return {one.name: one for one in callers}
