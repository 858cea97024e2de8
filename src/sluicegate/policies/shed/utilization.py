"""Utilization: refuse by ramps over how busy the machine is, class by class.

Source: Netflix's prioritized load shedding (2024); `kernels/utilization_shed.py` has the ramps. It
needs no traffic to learn from, and sees the CPU only. `retry_after_us` of a refusal is the setting
of that name, for nobody knows.

Cost: a comparison. Bounds: a ramp for each class.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.request import Request
from sluicegate.kernels.utilization_shed import RampSettings, UtilizationShed
from sluicegate.policies.shed.form import CLASSES, PASS, ShedForm, ShedStanding
from sluicegate.policies.shed.settings import ShedSettings
from sluicegate.policies.stress import StressState


@final
class UtilizationForm(ShedForm):
    """The ramps, and what was read of the machine."""

    __slots__ = ("_chance", "_ramps", "_retry_after_us")

    def __init__(self, chance: Chance, settings: ShedSettings) -> None:
        super().__init__(CLASSES * settings.cohorts)
        self._chance = chance
        self._ramps = UtilizationShed(settings)
        self._retry_after_us = settings.retry_after_us

    def judge(self, request: Request, now_us: int) -> int:
        """By chance, as its class's ramp says."""
        ramps = self._ramps
        place: int = request.criticality
        # Nothing is drawn for a class of which all pass.
        if ramps.refusal_share(place) > 0.0 and not ramps.admits(place, self._chance.draw()):
            return self._retry_after_us
        return PASS

    def end_window(self, picture: StressState, quiet: int) -> None:
        """Take in the utilization."""
        self._ramps.observe(picture.utilization or 0.0)

    def replace_ramps(self, ramps: RampSettings) -> None:
        """Go by these from now on; the utilization is read again."""
        self._ramps = UtilizationShed(ramps)

    def standing(self) -> ShedStanding:
        """The utilization, with its backlash."""
        effective = self._ramps.effective
        return ShedStanding(self._levels_max, self._levels_max, effective)
