"""The scenarios, one a file; read one, copy it, change it.

Each file ends with `SCENARIO`. `TABLE` has all of them by name, in the order of their numbers. A
file of a user's own is found by its path; what stands beside it can be imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenario import AnyScenario, Scenario, describe_mistake


def _import_all() -> list[AnyScenario]:
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return sorted((module.SCENARIO for module in modules), key=lambda scenario: scenario.number)


TABLE: Final[Mapping[str, AnyScenario]] = {scenario.name: scenario for scenario in _import_all()}


def find(name: str) -> AnyScenario:
    """The scenario of that name, of that number, or in that file."""
    if is_file(name):
        return load(name)
    for scenario in TABLE.values():
        if name in {scenario.name, str(scenario.number)}:
            return scenario
    raise BadValue("scenario", name, f"give one of {', '.join(TABLE)}, or the path of a .py file")


def is_file(name: str) -> bool:
    """Whether a scenario's name is the path of one."""
    return name.endswith(".py")


def load(path: str) -> AnyScenario:
    """The `SCENARIO` of a file; an error names the line of a mistake in it."""
    file = Path(path).resolve()
    if not file.is_file():
        raise BadValue("scenario", path, "give the path of a file that is there")
    return _loaded(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _loaded(file: Path, changed_ns: int) -> AnyScenario:
    """Once, unless it has changed: a trial asks for it at every run."""
    name = f"sluicegate_scenario_{file.stem}"
    spec = spec_from_file_location(name, file)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    sys.modules[name] = module  # dataclasses look there for their module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadValue("scenario", str(file), f"mend {describe_mistake(error, file)}") from error
    scenario = getattr(module, "SCENARIO", None)
    if not isinstance(scenario, Scenario):
        raise BadValue("scenario", str(file), "end the file with SCENARIO = Scenario(...)")
    return scenario
