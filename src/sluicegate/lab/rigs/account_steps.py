"""Account steps: how soon an account is held after a step of any size, at any rate.

A step to x times a limit L conforms to (L, B) for B / (x - 1) seconds and whatever chance adds, so
nobody may act at once, and time is counted from two instants in what was *attempted*:

    spent    a bucket of B that drains at L is full: the account conforms no more
    shown    since the step more has come than L t + B + 3 sqrt(L t), which is what chance makes of
             a steady stream: before that nobody can tell, however well informed

until each second admits the limit, give or take 5% and four sigmas of chance in a second. Whoever
sees all attempts at once is no sooner than `shown`; a scheme is later by its news. At 1.2 L the two
lie 0.1 s apart where L is 100,000 a second, 1.2 s at 1,000, and 5 s at 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Steps
from sluicegate.lab.rigs.accounts import (
    BUCKET_US,
    PER_S,
    SECOND_US,
    AccountRig,
    AccountRun,
    AccountScheme,
    overshoot_s,
    play,
    settled_s,
)
from sluicegate.lab.scenario import Figures

BEFORE: Final = 0.8  # limits, before the step
BEFORE_US: Final = 3 * SECOND_US
HOT_AFTER: Final = 7  # the node where most of it comes after the move
MOVED_US: Final = 4 * SECOND_US
SIGMAS: Final = 3.0
SECOND_SIGMAS: Final = 4.0  # of a second: hundreds of them are looked at
OFF: Final = 0.05


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSteps:
    """A run for each of `times`: from 0.8 to so many limits, then to other nodes.

    It stays where it is until it conforms no more and, at the rate of the limit, chance explains it
    no more; for `hold_us` after that.
    """

    per_s: int
    times: tuple[float, ...] = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
    batch_us: int = 0
    hold_us: int = 4 * SECOND_US

    def __post_init__(self) -> None:
        if not self.times or min(self.times) <= 1.0:
            raise BadValue("times", self.times, "give at least one number of limits, above 1")

    def rig(self, times: float) -> AccountRig:
        """The rig of one step."""
        chance = SIGMAS / sqrt(self.per_s)  # (times - 1) t = 1 + chance sqrt(t)
        shown_s = ((chance + sqrt(chance * chance + 4 * (times - 1))) / (2 * (times - 1))) ** 2
        shift_us = BEFORE_US + self.hold_us + round(shown_s * PER_S) * BUCKET_US
        return AccountRig(
            arrivals=Steps(((0, BEFORE * self.per_s), (BEFORE_US, times * self.per_s))),
            per_s=self.per_s,
            batch_us=self.batch_us,
            hot=((0, 0), (shift_us, HOT_AFTER)),
            step_us=BEFORE_US,
            shift_us=shift_us,
            span_us=shift_us + MOVED_US,
        )


def play_steps(rig: AccountSteps, scheme: AccountScheme, seed: int) -> list[AccountRun]:
    """Play a run for each step."""
    return [play(rig.rig(times), scheme, seed) for times in rig.times]


def spent_us(rig: AccountRig, run: AccountRun) -> int:
    """When what was attempted did not conform any more; the end if it always did."""
    level = 0.0
    for at, count in enumerate(run.attempted):
        level = max(level - rig.per_s / PER_S, 0.0) + count
        if level > rig.per_s * (1 + 1 / PER_S) and at * BUCKET_US >= rig.step_us:
            return (at + 1) * BUCKET_US
    return rig.span_us


def shown_us(rig: AccountRig, run: AccountRun) -> int:
    """When what was attempted since the step was more than chance explains; the end if never."""
    begin = rig.step_us // BUCKET_US
    totals = [0]
    for count in run.attempted[begin:]:
        totals.append(totals[-1] + count)
        for before in range(len(totals) - 1):
            due = rig.per_s * (len(totals) - 1 - before) / PER_S
            if totals[-1] - totals[before] > due + rig.per_s + SIGMAS * sqrt(due):
                return (begin + len(totals) - 1) * BUCKET_US
    return rig.span_us


def step_figures(rig: AccountRig, run: AccountRun) -> Figures:
    """The figures of one step."""
    end_us = rig.shift_us
    doubt = OFF + SECOND_SIGMAS / sqrt(rig.per_s)
    spent, shown = min(spent_us(rig, run), end_us), min(shown_us(rig, run), end_us)

    def late_s(begin_us: int, until_us: int) -> float:
        if until_us - begin_us < SECOND_US:  # nothing to look at: chance has hidden it until now
            return 0.0
        return settled_s(rig, run, begin_us, until_us, 1 - doubt, 1 + doubt)

    first = (shown + SECOND_US) // BUCKET_US
    held = run.admitted[first : rig.span_us // BUCKET_US]
    held_s = len(held) / PER_S
    mean = sum(held) / held_s / rig.per_s
    return {
        "spent_late_s": late_s(spent, end_us),
        "late_s": late_s(shown, end_us),
        "beyond_s": overshoot_s(rig, run, rig.step_us, rig.span_us),
        "moved_s": late_s(end_us, rig.span_us),
        "off": max(abs(mean - 1) - SIGMAS / sqrt(rig.per_s * held_s), 0.0),
    }


def measure_steps(rig: AccountSteps, runs: list[AccountRun]) -> Figures:
    """The worst of each figure, over all steps."""
    found = [step_figures(rig.rig(times), run) for times, run in zip(rig.times, runs, strict=True)]
    return {name: max(figures[name] for figures in found) for name in found[0]}
