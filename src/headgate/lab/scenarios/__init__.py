"""The scenarios, one a file; read one, copy it, change it.

Each file ends with `SCENARIO`. `TABLE` has all of them by name, in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.contracts.errors import BadValue
from headgate.lab.scenario import Scenario
from headgate.lab.scenarios import overload, queues, retry_storm, step

TABLE: Final[Mapping[str, Scenario]] = {
    module.SCENARIO.name: module.SCENARIO for module in (overload, queues, step, retry_storm)
}


def find(name: str) -> Scenario:
    """The scenario of that name, or number."""
    for scenario in TABLE.values():
        if name in {scenario.name, str(scenario.number)}:
            return scenario
    raise BadValue("scenario", name, f"give one of {', '.join(TABLE)}")
