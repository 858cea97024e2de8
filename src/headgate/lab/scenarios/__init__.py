"""The scenarios, one a file; read one, copy it, change it.

Each file ends with `SCENARIO`. `TABLE` has all of them by name, in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from headgate.contracts.errors import BadValue
from headgate.lab.scenario import AnyScenario


def _found() -> list[AnyScenario]:
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    return sorted((module.SCENARIO for module in modules), key=lambda scenario: scenario.number)


TABLE: Final[Mapping[str, AnyScenario]] = {scenario.name: scenario for scenario in _found()}


def find(name: str) -> AnyScenario:
    """The scenario of that name, or number."""
    for scenario in TABLE.values():
        if name in {scenario.name, str(scenario.number)}:
            return scenario
    raise BadValue("scenario", name, f"give one of {', '.join(TABLE)}")
