"""The sweeps that chose the defaults, one a file, so that the code can cite them.

Each file ends with `SWEEP`; its docstring says what came of it. `TABLE` has them by name.

    sluicegate lab tune queue
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from sluicegate.lab.tune.sweep import SettingsSweep


def _import_all() -> list[SettingsSweep]:
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return [module.SWEEP for module in modules]


TABLE: Final[Mapping[str, SettingsSweep]] = {sweep.name: sweep for sweep in _import_all()}
