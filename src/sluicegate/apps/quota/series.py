"""Series: from minutes of usage to the hours that a quota is proposed by.

An hour is what its busiest minute asked for, as request units a second, rounded up: a quota that
holds that minute holds the hour. What was asked for counts, not what was admitted, or a quota that
cuts its caller off would look right.

Usage files have no line for a minute in which nobody asked for anything, so silence has to be told
from absence: where the whole fleet was silent for a day or longer, or had not begun, or has ended,
its hours are unknown. Any shorter silence is hours of nothing, as is that of one caller while
others are heard; so a job that alone runs every night has whole days.

A day is read at a time, so what is held is the hours: 24 * days numbers a caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, final

from sluicegate.kernels.quota_tuning import WEEK, QuotaProposal, propose
from sluicegate.telemetry.usage_files import DAY_MINUTES, UsageMinute, read_usage

DAY_HOURS: Final = 24
HOUR_MINUTES: Final = 60
MINUTE_S: Final = 60
SILENCE_HOURS: Final = 24  # of everybody: from here on nobody was there to write
RU_MAX: Final = 1 << 40  # a budget holds no larger quota
# The epoch was a Thursday.
_FIRST_WEEKDAY: Final = 3
# What a dispatcher keeps of itself, and those it could not name: `(keeper)`, `(others)`.
_NOBODY: Final = "("


class Caller(NamedTuple):
    """One caller: its hours, oldest first, its quota now (None: unknown), and the proposal."""

    name: str
    hours: list[int | None]
    refused_ru: int
    current: int | None
    named: bool  # whether the rules name a quota for it; else `current` is everybody's
    proposal: QuotaProposal


class TuneSettings(NamedTuple):
    """How proposals are made; see `kernels/quota_tuning.py`."""

    headroom_percent: int = 30
    dead_band_percent: int = 10
    floor: int = 1
    cap: int | None = None
    days_min: int = 14


@final
class Month:
    """What was heard of each caller in the hours of so many whole days."""

    __slots__ = ("active_hours", "busiest", "days", "first_day", "refused_ru")

    def __init__(self, first_day: int, days: int) -> None:
        self.first_day = first_day
        self.days = days
        self.busiest: dict[str, list[int]] = {}
        self.refused_ru: dict[str, int] = {}
        self.active_hours: set[int] = set()

    @classmethod
    def read(cls, folders: Sequence[str], first_day: int, days: int) -> Month:
        """All that these folders say of these days."""
        month = cls(first_day, days)
        for day in range(first_day, first_day + days):
            month.add(read_usage(folders, day * DAY_MINUTES, (day + 1) * DAY_MINUTES))
        return month

    def add(self, usage: Mapping[str, Mapping[int, UsageMinute]]) -> None:
        """Some more minutes, each of which is told whole and once."""
        first_hour = self.first_day * DAY_HOURS
        for name, minutes in usage.items():
            if name.startswith(_NOBODY):
                self.active_hours.update(minute // HOUR_MINUTES - first_hour for minute in minutes)
                continue
            busiest = self.busiest.get(name)
            if busiest is None:
                busiest = self.busiest[name] = [0] * (self.days * DAY_HOURS)
            for minute, one in minutes.items():
                hour = minute // HOUR_MINUTES - first_hour
                self.active_hours.add(hour)
                busiest[hour] = max(busiest[hour], one.asked_ru)
            refused = sum(one.refused_ru for one in minutes.values())
            self.refused_ru[name] = self.refused_ru.get(name, 0) + refused

    def hours(self) -> dict[str, list[int | None]]:
        """Each caller's, as request units a second; None where nobody was there to write."""
        recorded = _recorded_hours(self.active_hours, self.days * DAY_HOURS)
        return {
            name: [
                -(-ru // MINUTE_S) if is_recorded else None
                for ru, is_recorded in zip(self.busiest[name], recorded, strict=True)
            ]
            for name in sorted(self.busiest)
        }


def callers_of(
    month: Month, current: Mapping[str, int], default: int | None, settings: TuneSettings
) -> list[Caller]:
    """Everybody that was heard of, by name, and what follows from their hours."""
    found = []
    for name, hours in month.hours().items():
        now = current.get(name, default)
        proposal = propose(
            hours,
            hourly=True,
            first_weekday=(month.first_day + _FIRST_WEEKDAY) % WEEK,
            current=now,
            floor=settings.floor,
            cap=RU_MAX if settings.cap is None else settings.cap,
            headroom_percent=settings.headroom_percent,
            dead_band_percent=settings.dead_band_percent,
            days_min=settings.days_min,
            days_max=month.days,
        )
        found.append(
            Caller(
                name,
                hours,
                month.refused_ru[name],
                now,
                name in current,
                _without_usual_day(proposal),
            )
        )
    return found


def _without_usual_day(proposal: QuotaProposal) -> QuotaProposal:
    """Whoever comes now and then is not tuned down to the floor for having no usual day."""
    if proposal.quota is None or proposal.estimate:
        return proposal
    reason = f"No usual day of {proposal.days} had any usage, so nothing is proposed."
    return proposal._replace(quota=None, reason=reason)


def _recorded_hours(active_hours: set[int], count: int) -> list[bool]:
    """Which hours there was somebody to write."""
    recorded = [False] * count
    before: int | None = None
    for hour in sorted(active_hours):
        if before is None or hour - before > SILENCE_HOURS:
            before = hour
        for between in range(before, hour + 1):
            recorded[between] = True
        before = hour
    return recorded
