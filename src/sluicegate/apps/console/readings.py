"""Readings: what charts show, a reading each round, for as long as the settings say.

Bound: `readings_max` readings of a few numbers, and of the `TRENDS_MAX` callers who spend most the
means and the peaks of `TREND_MINUTES` minutes. A chart has at most `POINTS_MAX` points: of the
readings that share one, rates are averaged and of delays the worst counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from sluicegate.apps.console.picture import CLASSES, FleetPicture

POINTS_MAX: Final = 240
TRENDS_MAX: Final = 200
TREND_MINUTES: Final = 60
_US: Final = 1_000_000


class Reading(NamedTuple):
    """The numbers of one picture."""

    at_us: int
    admitted: float
    from_memory: float
    refused: float
    refused_by_class: tuple[float, ...]
    p99_us: float | None
    queue_us: float | None
    ratio: float | None
    utilization: float | None


Value = Callable[[Reading], "float | None"]


class _Minute:
    """What a caller spent in one minute, and asked for, what was refused included."""

    __slots__ = ("asked_peak_ru", "asked_ru", "count", "number", "total_ru")

    def __init__(self, number: int) -> None:
        self.number = number
        self.total_ru = 0.0
        self.asked_ru = 0.0
        self.asked_peak_ru = 0.0  # of one reading, a second
        self.count = 0


class AskedHour(NamedTuple):
    """What a caller asked for in the last hour, units a second, and the part that was refused."""

    peak_ru: float
    refused_part: float


@final
class FleetReadings:
    """The readings, the oldest first."""

    __slots__ = ("_minute", "_readings", "_trends")

    def __init__(self, readings_max: int) -> None:
        self._readings: deque[Reading] = deque(maxlen=readings_max)
        self._trends: dict[str, deque[_Minute]] = {}
        self._minute = 0

    def add(self, picture: FleetPicture) -> None:
        """Keep the numbers of a picture."""
        flows = {flow.name: flow for flow in picture.classes}
        self._readings.append(
            Reading(
                picture.at_us,
                picture.admitted,
                picture.from_memory,
                picture.refused,
                tuple(flows[name].refused if name in flows else 0.0 for name in CLASSES),
                picture.p99_us,
                picture.queue_us,
                picture.ratio,
                picture.utilization,
            )
        )

        self._add_callers(picture)

    def trend(self, caller: str) -> list[float]:
        """Return what a caller spent a second, a mean for each of the last minutes it was seen."""
        return [one.total_ru / one.count for one in self._trends.get(caller, ())]

    def demand(self, caller: str) -> AskedHour:
        """Return what a caller asked for at most, of the minutes of the last hour it was seen."""
        since = self._minute - TREND_MINUTES
        minutes = [one for one in self._trends.get(caller, ()) if one.number > since]
        asked_ru = sum(one.asked_ru for one in minutes)
        spent_ru = sum(one.total_ru for one in minutes)
        peak_ru = max((one.asked_peak_ru for one in minutes), default=0.0)
        return AskedHour(peak_ru, 1 - spent_ru / asked_ru if asked_ru else 0.0)

    def _add_callers(self, picture: FleetPicture) -> None:
        minute = self._minute = picture.at_us // (60 * _US)
        for one in picture.dispatchers.get("callers", ())[:TRENDS_MAX]:
            trend = self._trends.setdefault(one["caller"], deque(maxlen=TREND_MINUTES))
            if not trend or trend[-1].number != minute:
                trend.append(_Minute(minute))
            last, asked_ru = trend[-1], one["ru"] + one.get("refused_ru", 0.0)
            last.total_ru += one["ru"]
            last.asked_ru += asked_ru
            last.asked_peak_ru = max(last.asked_peak_ru, asked_ru)
            last.count += 1
        if len(self._trends) > 2 * TRENDS_MAX:
            latest = sorted(self._trends.items(), key=lambda one: one[1][-1].number)
            self._trends = dict(latest[-TRENDS_MAX:])

    def curve(self, span_s: int, value: Value, *, worst: bool = False) -> list[float | None]:
        """Values of the last seconds, None where there are none; with `worst` not their mean."""
        if not self._readings:
            return []
        end_us = self._readings[-1].at_us
        count = min(POINTS_MAX, span_s)
        each_us = span_s * _US // count
        slots: list[list[float]] = [[] for _ in range(count)]
        for reading in reversed(self._readings):
            at = count - 1 - (end_us - reading.at_us) // each_us
            if at < 0:
                break
            number = value(reading)
            if number is not None:
                slots[at].append(number)
        return [_one_of(slot, worst=worst) for slot in slots]


def _one_of(values: Sequence[float], *, worst: bool) -> float | None:
    if not values:
        return None
    return max(values) if worst else sum(values) / len(values)
