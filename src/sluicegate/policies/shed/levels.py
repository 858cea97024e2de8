"""Levels: refuse above a level that moves, class by class from BULK up, by cohorts in each.

Source: DAGOR (Zhou et al., 2018); `kernels/priority_shed.py` has the mark and the histogram of what
really comes by which it moves. It is the only form that finds any depth of overload by itself. Slow
work alone does not move it: if its cause is not how much is let in, refusing would go on to the end
and help nothing. Cohorts of callers change each `rotate_us`, so nobody is unlucky for long. A
cohort at the mark is admitted in part, by chance. `spread="key"` spreads by key instead of caller,
so that few callers share the refusals evenly.

`levels_kept` are never refused: a wrong signal does not shut the door. `retry_after_us` of a
refusal is the time in which the level would come back to this one if it rose from now on.

Cost: an addition and a comparison; a hash for each caller once each `rotate_us`. Bounds: 4 classes
of `cohorts`; the cohorts of at most `callers_max` callers are remembered.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.request import Request
from sluicegate.kernels.priority_shed import PERMILLE, PriorityShed, cohort
from sluicegate.policies.shed.form import CLASSES, PASS, ShedForm, ShedStanding
from sluicegate.policies.shed.settings import ShedSettings
from sluicegate.policies.stress import StressLevel, StressState


@final
class LevelsForm(ShedForm):
    """The mark, and the cohorts of the callers."""

    __slots__ = (
        "_by_key", "_chance", "_cohort_of", "_cohorts", "_hour", "_hour_end_us", "_levels",
        "_settings",
    )  # fmt: skip

    def __init__(self, chance: Chance, settings: ShedSettings) -> None:
        super().__init__(CLASSES * settings.cohorts)
        self._chance = chance
        self._settings = settings
        self._levels = PriorityShed(
            classes=CLASSES,
            cohorts=settings.cohorts,
            cut_permille=settings.cut_permille,
            raise_permille=settings.raise_permille,
            keep_permille=settings.keep_permille,
            levels_kept=settings.levels_kept,
            floor=settings.floor,
        )
        self._by_key = settings.spread == "key"
        self._cohorts = settings.cohorts
        self._cohort_of: dict[str, int] = {}
        self._hour = -1
        self._hour_end_us = -1

    def judge(self, request: Request, now_us: int) -> int:
        """By its class and cohort."""
        place: int = request.criticality
        level = place * self._cohorts + self._cohort(request, now_us)
        levels = self._levels
        draw = 0.0 if levels.admits(level) else self._chance.draw()
        return PASS if levels.admit(level, draw) else self._back_us(level)

    def end_window(self, picture: StressState, quiet: int) -> None:
        """Move the mark: the deeper the stress, the more at once."""
        levels = self._levels
        for _ in range(quiet):
            levels.tick(False)
        hard = picture.level == StressLevel.HARD
        levels.tick(picture.crowded, hard)
        # What is nearly right is approached in small steps.
        for _ in range(min(int(picture.depth), self._settings.cuts_max) - 1):
            levels.tick(True, hard)

    def standing(self) -> ShedStanding:
        """The levels that are admitted whole."""
        return ShedStanding(self._levels.threshold, self._levels_max, 0.0)

    def _cohort(self, request: Request, now_us: int) -> int:
        """The cohort of whoever asks; who has no name is spread by key."""
        who = request.caller
        if self._by_key or not who:
            who = request.key
        if now_us >= self._hour_end_us:
            self._hour = now_us // self._settings.rotate_us
            self._hour_end_us = (self._hour + 1) * self._settings.rotate_us
            self._cohort_of.clear()
        number = self._cohort_of.get(who)
        if number is None:
            number = cohort(who, self._hour, self._cohorts)
            if len(self._cohort_of) >= self._settings.callers_max:
                self._cohort_of.clear()
            self._cohort_of[who] = number
        return number

    def _back_us(self, level: int) -> int:
        """When the level will have come back to this one, if it rises from now on."""
        settings = self._settings
        above = level + 1 - self._levels.threshold
        each = self._levels_max * settings.raise_permille
        windows = -(-above * PERMILLE // each)
        return min(windows * settings.window_us, settings.retry_after_us_max)
