"""The shed: under stress, what matters less goes first; a file for each form, one for the settings,
and `shed.py` for the stage, which knows of no form more than what all of them answer.
"""

from __future__ import annotations

from sluicegate.policies.shed.settings import ShedSettings, ShedStats
from sluicegate.policies.shed.shed import Shed

__all__ = ["Shed", "ShedSettings", "ShedStats"]
