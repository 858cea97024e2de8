"""Canary: when a version that is in force for some callers may be in force for more.

A pure core: what is known goes in, what is to be done comes out. A step is held for a time and for
a least number of CRITICAL decisions; then the next one is taken, if CRITICAL is not refused more
than under the live version by more than the setting, and if no node got into trouble. What is worse
is taken back as soon as that can be told, without waiting for the time.

Shares are of 10,000. Rates are compared in whole numbers, so the bound is exact: what is worse by
just the setting goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue

WHOLE: Final = 10_000
_MINUTE_US: Final = 60_000_000
_STEPS_MAX: Final = 100

HOLD: Final = "hold"
ADVANCE: Final = "advance"
FINISH: Final = "finish"  # make it live
ROLL_BACK: Final = "roll back"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySettings:
    """How a canary grows, and what ends it."""

    steps: tuple[int, ...] = (100, 500, 2_500, WHOLE)  # 1, 5, 25 and 100 percent
    hold_us: int = 5 * _MINUTE_US  # each step, at least
    critical_min: int = 1_000  # CRITICAL decisions under the canary in each step, at least
    worse_max: int = 500  # of 10,000 CRITICAL decisions, refused more than under live
    troubled_max: int = 0  # nodes that got into trouble since the canary began
    stalled_us_max: int = 24 * 60 * _MINUTE_US  # a step without enough decisions; then it ends
    auto: bool = True  # grow by itself; taking back by itself is always on

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.steps, self.steps[1:], strict=False))
        if not (0 < len(self.steps) <= _STEPS_MAX and rising and self.steps[0] > 0):
            raise BadValue("canary.steps", self.steps, "give rising shares of 10,000")
        if self.steps[-1] != WHOLE:
            raise BadValue("canary.steps", self.steps, f"end with {WHOLE}: everybody")
        if self.hold_us < 0 or self.stalled_us_max <= self.hold_us:
            raise BadValue("canary.hold_us", self.hold_us, "give less than stalled_us_max")
        if self.critical_min < 1:
            raise BadValue("canary.critical_min", self.critical_min, "give at least 1")
        if not 0 <= self.worse_max <= WHOLE:
            raise BadValue("canary.worse_max", self.worse_max, "give 0 to 10,000 of 10,000")
        if self.troubled_max < 0:
            raise BadValue("canary.troubled_max", self.troubled_max, "give 0 or more")


class Figures(NamedTuple):
    """What the fleet has seen since the step began."""

    critical: int  # decisions on CRITICAL work under the canary's version
    refused: int  # of these
    live_critical: int
    live_refused: int
    troubled: int  # nodes in trouble now that were in none when the canary began


class CanaryState(NamedTuple):
    """A canary that is under way: its share, and since when it has that."""

    version: int
    share: int
    since_us: int


class Action(NamedTuple):
    """What is to be done, and why in a sentence."""

    kind: str
    reason: str = ""


def step(
    state: CanaryState, figures: Figures, now_us: int, settings: CanarySettings
) -> tuple[CanaryState, Action]:
    """What becomes of a canary, judged by what is known now."""
    if figures.troubled > settings.troubled_max:
        return state, Action(
            ROLL_BACK,
            f"{figures.troubled} nodes got into trouble since the canary began "
            f"(at most {settings.troubled_max})",
        )
    held_us = now_us - state.since_us
    if figures.critical < settings.critical_min:
        if held_us >= settings.stalled_us_max:
            return state, Action(
                ROLL_BACK,
                f"only {figures.critical:,} CRITICAL decisions in {held_us // _MINUTE_US:,} "
                f"minutes at a share of {percent(state.share)} (at least "
                f"{settings.critical_min:,})",
            )
        return state, Action(HOLD)
    if is_worse(figures, settings.worse_max):
        return state, Action(
            ROLL_BACK, f"{told(figures)}; more by over {percent(settings.worse_max)}"
        )
    if held_us < settings.hold_us or not settings.auto:
        return state, Action(HOLD)
    share = next((one for one in settings.steps if one > state.share), WHOLE)
    kind = FINISH if share == WHOLE else ADVANCE
    return CanaryState(state.version, share, now_us), Action(kind, told(figures))


def is_worse(figures: Figures, worse_max: int) -> bool:
    """Whether the canary refuses a larger part of CRITICAL than live does, by more than that."""
    # refused / critical - live_refused / live_critical > worse_max / WHOLE, without a division.
    live = max(figures.live_critical, 1)  # no decision under live is none refused there
    more = figures.refused * live - figures.live_refused * figures.critical
    return more * WHOLE > worse_max * figures.critical * live


def told(figures: Figures) -> str:
    """The figures as a sentence."""
    return (
        f"{figures.refused:,} of {figures.critical:,} CRITICAL decisions refused under the canary, "
        f"{figures.live_refused:,} of {figures.live_critical:,} under live"
    )


def percent(share: int) -> str:
    """A share of 10,000 as people write it."""
    return f"{share / 100:g}%"
