"""Series: from minutes of usage to the hours that a quota is proposed by.

An hour is what its busiest minute asked for, as request units a second, rounded up: a quota that
holds that minute holds the hour. What was asked for counts, not what was admitted, or a quota that
cuts its caller off would look right. Hours in which the fleet wrote nothing at all are unknown;
an hour in which others used something and this caller did not is an hour of nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headgate.kernels.quota_tuning import WEEK, Proposal, propose
from headgate.telemetry.usage_files import DAY_MINUTES, Minute

HOUR_MINUTES: Final = 60
MINUTE_S: Final = 60
# The epoch was a Thursday.
_FIRST_WEEKDAY: Final = 3


class Caller(NamedTuple):
    """One caller: its hours, oldest first, its quota now (None: the default), and the proposal."""

    name: str
    hours: list[int | None]
    refused_ru: int
    current: int | None
    proposal: Proposal


class Wishes(NamedTuple):
    """How proposals are made; see `kernels/quota_tuning.py`."""

    headroom_percent: int = 30
    dead_band_percent: int = 10
    floor: int = 1
    cap: int | None = None
    days_min: int = 14


def callers_of(
    usage: Mapping[str, Mapping[int, Minute]],
    current: Mapping[str, int],
    default: int | None,
    *,
    last_day: int,
    days: int,
    wishes: Wishes,
) -> list[Caller]:
    """Everybody's hours of the `days` whole days before `last_day`, and what follows from them."""
    first = (last_day - days) * DAY_MINUTES
    known = {minute // HOUR_MINUTES for minutes in usage.values() for minute in minutes}
    found = []
    for name, minutes in sorted(usage.items()):
        hours = hours_of(minutes, known, first // HOUR_MINUTES, days * 24)
        now = current.get(name, default)
        proposal = propose(
            hours,
            hourly=True,
            first_weekday=(last_day - days + _FIRST_WEEKDAY) % WEEK,
            current=now,
            floor=wishes.floor,
            cap=wishes.cap,
            headroom_percent=wishes.headroom_percent,
            dead_band_percent=wishes.dead_band_percent,
            days_min=wishes.days_min,
            days_max=max(days, wishes.days_min),
        )
        refused = sum(one.refused_ru for one in minutes.values())
        found.append(Caller(name, hours, refused, current.get(name), proposal))
    return found


def hours_of(
    minutes: Mapping[int, Minute], known: set[int], first_hour: int, count: int
) -> list[int | None]:
    """The busiest minute of each hour, in units a second."""
    busiest: dict[int, int] = {}
    for minute, one in minutes.items():
        hour = minute // HOUR_MINUTES
        busiest[hour] = max(busiest.get(hour, 0), one.asked_ru)
    return [
        -(-busiest.get(hour, 0) // MINUTE_S) if hour in known else None
        for hour in range(first_hour, first_hour + count)
    ]
