"""Shed: under stress, what matters less goes first.

It reads the state of `stress` once each `window_us`, and acts in one of two forms, each in
a file of its name:

    form           what it does                               heeds              from
    levels         refuses above a level that moves           crowded            DAGOR (2018)
    utilization    refuses by ramps over the utilization      utilization        Netflix (2024)

**levels** is the default. Before `queue`, which keeps its own delay short and goes by class too, it
has little left to do (one refusal in a hundred in the lab's `priority`); without a queue that
refuses it comes too late, for a plain line is full of the dead before the level is down.

A `floor` of 1% of what would be refused passes in both forms, so that no class
starves unseen; in hard overload nothing does. Whom the queue behind `owes` a place always passes:
of slow work 1% may be one in seconds, and find no place then. Windows without any traffic open the
gate, `CATCH_UP_MAX` at once.

What comes is counted whether or not a later stage refuses it, so there is nothing to take back.

Cost: a look at the time, and the form's. Bounds: the form's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.policy import NOTHING_HELD, BasePolicy, NothingHeld
from sluicegate.contracts.reasons import SHED
from sluicegate.contracts.request import Request
from sluicegate.kernels.utilization_shed import RampSettings
from sluicegate.policies.shed.form import CLASSES, ShedForm
from sluicegate.policies.shed.levels import LevelsForm
from sluicegate.policies.shed.settings import ShedSettings, ShedStats
from sluicegate.policies.shed.utilization import UtilizationForm
from sluicegate.policies.stress import StressSource

RULE_ID: Final = "shed"
# After so many quiet windows the gate is open, whatever it was.
CATCH_UP_MAX: Final = 128


@final
class Shed(BasePolicy):
    """Judges by class and stress, in one of the two forms."""

    __slots__ = (
        "_admitted", "_begin_us", "_due_us", "_form", "_owes", "_refusals", "_stress",
        "_window_us", "_windows", "settings",
    )  # fmt: skip

    def __init__(
        self,
        stress: StressSource,
        chance: Chance,
        settings: ShedSettings | None = None,
        owes: Callable[[Request], bool] | None = None,
    ) -> None:
        """`owes` says of a unit whether the queue behind has to have it, whatever the stress."""
        settings = ShedSettings() if settings is None else settings
        self.settings = settings
        self._stress = stress
        self._owes = owes
        self._form = _form(settings, chance)
        self._window_us = settings.window_us
        self._begin_us = 0
        self._due_us = -1
        self._windows = 0
        self._admitted = [0] * CLASSES
        self._refusals = [0] * CLASSES

    def admit(self, request: Request, now_us: int) -> NothingHeld | Decision:
        """Admit it or not by its class; it holds nothing."""
        if now_us >= self._due_us or now_us < self._begin_us:
            self._end_window(now_us)
        place: int = request.criticality
        retry_us = self._form.judge(request, now_us)
        if retry_us >= 0 and (self._owes is None or not self._owes(request)):
            self._refusals[place] += 1
            return Decision(False, 0, retry_us, retry_us, SHED, RULE_ID)
        self._admitted[place] += 1
        return NOTHING_HELD

    def replace_ramps(self, ramps: RampSettings) -> None:
        """Go by these from the next window on, in the form `utilization`."""
        self._form.replace_ramps(ramps)
        self._due_us = -1

    def stats(self) -> ShedStats:
        """Counts since the start, and where the form stands."""
        standing = self._form.standing()
        return ShedStats(
            self.settings.form,
            tuple(self._admitted),
            tuple(self._refusals),
            standing.level,
            standing.levels,
            standing.utilization,
            self._windows,
        )

    def _end_window(self, now_us: int) -> None:
        """A window is over, or several in which nothing came."""
        passed = (now_us - self._begin_us) // self._window_us if self._windows > 0 else 1
        self._begin_us = now_us
        self._due_us = now_us + self._window_us
        self._windows += 1
        self._form.end_window(self._stress.read(now_us), min(passed - 1, CATCH_UP_MAX))


def _form(settings: ShedSettings, chance: Chance) -> ShedForm:
    if settings.form == "levels":
        return LevelsForm(chance, settings)
    return UtilizationForm(chance, settings)
