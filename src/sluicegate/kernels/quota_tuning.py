"""Quota tuning: from a month of usage to a proposed quota, with the reason in words.

Source: Sluicegate's own, on robust statistics everyone has: the median, and the slope of Theil
(1950) and Sen (1968), the median of the slopes between all pairs. Usage is a list of whole numbers,
one an hour or one a day, oldest first, None where nothing was recorded; the quota is in the same
unit for the same time. Four factors make it:

    quota = seasonal peak * spread * growth * headroom

    level           how each day stands to the usual, the median over its hours of usage / profile.
                    Explained as flat, as one step or as a straight slope, whichever leaves the
                    least absolute error; flat unless another leaves a third less
    seasonal peak   the highest place of the profile, the median of each hour of the week (of each
                    weekday, for days), with the level taken out and today's put in
    spread          how far the highest hour of a usual such day stands above that profile: for each
                    weekday the median of its days' highest hours, the highest weekday's, over the
                    seasonal peak
    growth          a slope is carried on for `horizon_days`, upwards only, by at most
                    `growth_percent_max`; a step is not
    headroom        `headroom_percent` on top

Why so. A month has four or five of each hour of the week, so all that counts is a median of those:
one wild hour, one dead day or a gap moves nothing, and what returns every week is a season and not
an outlier. The profile alone would miss work that runs once a day at no fixed hour, whose every
hour has the median 0; the daily highest does not. A step (a customer doubled last week) fitted by a
slope would go on rising in the forecast, so the two are told apart. What follows a step is at least
seven days long, so it is believed when five of the last seven days show it. Falling usage is not
carried on downwards.

The proposal is held between `floor` and `cap`. It is withheld when it is within `dead_band_percent`
of the present quota, or when fewer than `days_min` days have three quarters of their hours or more.

Not good at: what happens once a month (it is an outlier here; raise the floor), holidays, peaks
shorter than an hour (feed the highest minute of each hour instead). It takes what it is given for
demand: usage that was cut off by the present quota understates it, so feed what was *attempted*;
the reason says how often usage reached the quota.

Cost: some milliseconds for 720 hours; this is for a nightly job.
Bounds: at most `days_max` days of input, values up to 2^53; the proposal is between floor and cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sluicegate.kernels.bounds import within

WEEK: Final = 7
DAYS_MAX: Final = 400
USAGE_MAX: Final = 1 << 53
WEEKDAYS: Final = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)
_SETTLED_DAYS: Final = 7  # a step needs as many days on both sides of it
_BETTER: Final = 2 / 3  # what another model may leave of the flat error, to be preferred
_LEVEL_MIN: Final = 0.05
_ERROR_MAX: Final = 1.0  # one day counts at most this much against a model


class QuotaProposal(NamedTuple):
    """What to set, and why. `quota` is None when the present one should stay."""

    quota: int | None
    reason: str
    estimate: int  # what the four factors came to, before floor, cap and dead band
    seasonal_peak: int
    spread: float
    growth: float
    headroom_percent: int
    busiest: str
    days: int  # with enough data
    above: int  # how many of the hours (or days) given were above the estimate


class UsageLevel(NamedTuple):
    """How the days stand to the usual: `at(day)`, 1 being the usual."""

    kind: str  # flat, step or slope
    base: float
    slope: float
    step_at: int
    after: float

    def at(self, day: float) -> float:
        """The level of a day, past or to come; never 0."""
        if self.kind == "step" and day >= self.step_at:
            return max(self.after, _LEVEL_MIN)
        return max(self.base + self.slope * day, _LEVEL_MIN)


def propose(
    usage: Sequence[int | None],
    *,
    hourly: bool = True,
    first_weekday: int = 0,
    current: int | None = None,
    floor: int = 1,
    cap: int | None = None,
    headroom_percent: int = 30,
    dead_band_percent: int = 10,
    days_min: int = 14,
    days_max: int = 92,
    horizon_days: int = 14,
    growth_percent_max: int = 25,
) -> QuotaProposal:
    """The quota that a month of `usage` suggests; `first_weekday` is 0 for a Monday."""
    within("first_weekday", first_weekday, 0, WEEK - 1)
    within("floor", floor, 0, USAGE_MAX)
    within("headroom_percent", headroom_percent, 0, 1_000)
    within("dead_band_percent", dead_band_percent, 0, 1_000)
    within("days_max", days_max, WEEK, DAYS_MAX)
    within("days_min", days_min, WEEK, days_max)
    within("horizon_days", horizon_days, 0, DAYS_MAX)
    within("growth_percent_max", growth_percent_max, 0, 1_000)
    if cap is not None:
        within("cap", cap, floor, USAGE_MAX)
    if current is not None:
        within("current", current, 0, USAGE_MAX)
    per_day = 24 if hourly else 1
    days = _days(usage, per_day, days_max)
    full = sum([_is_full(day) for day in days])
    if full < days_min:
        reason = f"Only {full} of {len(days)} days have enough data; {days_min} are needed."
        return QuotaProposal(None, reason, 0, 0, 1.0, 1.0, headroom_percent, "", full, 0)

    level = fit_level(day_levels(days, profile(days)))
    levelled = [_divide(day, level.at(at)) for at, day in enumerate(days)]
    shape = profile(levelled)
    highest = shape.index(max(shape))
    daily = _weekday_peak(levelled)
    spread = daily / shape[highest] if shape[highest] > 0.0 else 1.0
    today = level.at(len(days) - 1)
    growth = min(level.at(len(days) - 1 + horizon_days) / today, 1.0 + growth_percent_max / 100)
    growth = growth if level.kind == "slope" and growth > 1.0 else 1.0
    exact = daily * today * growth * (100 + headroom_percent) / 100
    estimate = int(exact) + (exact - int(exact) > 1e-6 * exact)  # up, but not for a rounding error
    parts = QuotaProposal(
        quota=None,
        reason="",
        estimate=estimate,
        seasonal_peak=round(daily / spread * today),
        spread=spread,
        growth=growth,
        headroom_percent=headroom_percent,
        busiest=_slot_name(highest, per_day, first_weekday) if shape[highest] > 0.0 else "",
        days=full,
        above=sum([one is not None and one > estimate for one in usage]),
    )
    return _decide(parts, level, usage, current, floor, cap, dead_band_percent, horizon_days)


def sufficing_quota(asked_peak: float, current: int, *, headroom_percent: int = 30) -> int | None:
    """The quota that would have done for the highest usage of a while; None if this one does.

    A while is not a month: it is never reason enough for less.
    """
    if asked_peak <= current:
        return None
    exact = asked_peak * (100 + headroom_percent) / 100
    return int(exact) + (exact - int(exact) > 1e-6 * exact)


def profile(days: list[list[float | None]]) -> list[float]:
    """The median of each hour of the week (of each weekday, for daily usage); 0 where unknown."""
    per_day = len(days[0])
    shape: list[float] = []
    for weekday in range(WEEK):
        for hour in range(per_day):
            values: list[float] = []
            for day in days[weekday::WEEK]:
                value = day[hour]
                if value is not None:
                    values.append(value)
            shape.append(median(values))
    return shape


def day_levels(days: list[list[float | None]], shape: list[float]) -> list[float | None]:
    """How each day stands to the profile, by the hours that matter; None where that is unknown."""
    enough = max(shape) / 10
    levels: list[float | None] = []
    for at, day in enumerate(days):
        start = at % WEEK * len(day)
        ratios: list[float] = []
        for hour, value in enumerate(day):
            usual = shape[start + hour]
            if value is not None and usual > enough:
                ratios.append(value / usual)
        levels.append(median(ratios) if ratios else None)
    return levels


def fit_level(levels: Sequence[float | None]) -> UsageLevel:
    """The flat level, one step or a slope: what explains the days best, flat in doubt."""
    points = [(at, level) for at, level in enumerate(levels) if level is not None]
    if not points:
        return UsageLevel("flat", 1.0, 0.0, 0, 1.0)
    flat = UsageLevel("flat", median([level for _, level in points]), 0.0, 0, 0.0)
    best = flat
    least = _BETTER * _error(flat, points)
    slope = median([(b[1] - a[1]) / (b[0] - a[0]) for a in points for b in points if a[0] < b[0]])
    base = median([level - slope * at for at, level in points])
    candidates = [UsageLevel("slope", base, slope, 0, 0.0)]
    for cut in range(_SETTLED_DAYS, len(points) - _SETTLED_DAYS + 1):
        before = median([level for _, level in points[:cut]])
        after = median([level for _, level in points[cut:]])
        candidates.append(UsageLevel("step", before, 0.0, points[cut][0], after))
    for candidate in candidates:
        error = _error(candidate, points)
        if error < least:
            best, least = candidate, error
    return best


def median(values: list[float]) -> float:
    """The value in the middle; of two the lower, for one of them may be a spike; 0 of none."""
    if not values:
        return 0.0
    values = sorted(values)
    middle = len(values) // 2
    if len(values) % 2 == 1:
        return values[middle]
    if len(values) == 2:
        return values[0]
    return (values[middle - 1] + values[middle]) / 2


def _days(usage: Sequence[int | None], per_day: int, days_max: int) -> list[list[float | None]]:
    if len(usage) % per_day or not 1 <= len(usage) // per_day <= days_max:
        raise ValueError(
            f"usage must be of 1 to {days_max} whole days, not {len(usage)} values of "
            f"{per_day} a day"
        )
    for at, value in enumerate(usage):
        if value is not None and not 0 <= value <= USAGE_MAX:
            raise ValueError(f"usage[{at}] must be from 0 to 2^53 or None, not {value}")
    exact = [None if value is None else float(value) for value in usage]
    return [exact[at : at + per_day] for at in range(0, len(exact), per_day)]


def _is_full(day: list[float | None]) -> bool:
    return 4 * sum([value is not None for value in day]) >= 3 * len(day)


def _divide(day: list[float | None], level: float) -> list[float | None]:
    return [None if value is None else value / level for value in day]


def _error(level: UsageLevel, points: list[tuple[int, float]]) -> float:
    return sum([min(abs(value - level.at(at)), _ERROR_MAX) for at, value in points])


def _weekday_peak(days: list[list[float | None]]) -> float:
    """The highest of the weekdays' usual daily highest."""
    highest = 0.0
    for weekday in range(WEEK):
        peaks = [
            max([value for value in day if value is not None])
            for day in days[weekday::WEEK]
            if _is_full(day)
        ]
        highest = max(highest, median(peaks))
    return highest


def _slot_name(place: int, per_day: int, first_weekday: int) -> str:
    weekday = WEEKDAYS[(place // per_day + first_weekday) % WEEK]
    return f"{weekday} {place % per_day:02}:00" if per_day > 1 else weekday


def _decide(
    parts: QuotaProposal,
    level: UsageLevel,
    usage: Sequence[int | None],
    current: int | None,
    floor: int,
    cap: int | None,
    dead_band_percent: int,
    horizon_days: int,
) -> QuotaProposal:
    """Hold the estimate between floor and cap, weigh it against the present, and say why."""
    quota = parts.estimate
    sentences = [_explain(parts, level, len(usage), horizon_days)]
    if quota < floor:
        quota = floor
        sentences.append(f"Raised to the floor of {floor}.")
    elif cap is not None and quota > cap:
        quota = cap
        sentences.append(f"Held at the cap of {cap}.")
    if current is None:
        return parts._replace(quota=quota, reason=" ".join(sentences))
    reached = sum([one is not None and one >= current for one in usage])
    if reached:
        sentences.append(
            f"Usage reached the present quota {reached} times: more may have been wanted."
        )
    if 100 * abs(quota - current) <= dead_band_percent * current:
        sentences.append(
            f"{quota} is within {dead_band_percent}% of the present {current}: no change."
        )
        return parts._replace(reason=" ".join(sentences))
    return parts._replace(quota=quota, reason=" ".join(sentences))


def _explain(parts: QuotaProposal, level: UsageLevel, count: int, horizon_days: int) -> str:
    if parts.estimate == 0:
        return f"No usual day of {parts.days} had any usage."
    sentences = [
        f"The usual peak is {parts.seasonal_peak} on {parts.busiest}"
        if parts.busiest
        else f"Usage keeps no hours; a usual day's highest is {parts.seasonal_peak}"
    ]
    if parts.spread > 1.005:
        sentences.append(f"a usual day's highest is {parts.spread:.2f} times that")
    if level.kind == "step":
        sentences.append(f"the level stepped from {level.base:.2f} to {level.after:.2f}")
    if level.kind == "slope" and level.slope < 0.0:
        sentences.append("usage is falling")
    if parts.growth > 1.0:
        sentences.append(f"growth adds {100 * (parts.growth - 1):.0f}% in {horizon_days} days")
    sentences.append(f"with {parts.headroom_percent}% headroom that makes {parts.estimate}")
    if parts.above:
        sentences.append(f"{parts.above} of {count} were above it")
    return "; ".join(sentences) + "."
