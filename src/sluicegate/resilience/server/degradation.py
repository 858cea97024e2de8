"""Degradation: which parts of an answer the service leaves out under stress.

    [degrade]
    recommendations = "stressed"
    search_history = "hard"

Each switch has the level of stress from which on its part is left out; `always` and `never` are for
an operator. The work asks `resilience.context.degraded("recommendations")`. A switch without a
level is a mistake in the program, and is named.

Cost: a look-up and a read of the stress. Bounds: `SWITCHES_MAX`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.settings import one_of
from sluicegate.policies.stress import StressLevel, StressSource

SWITCHES_MAX: Final = 256
_NEVER: Final = 1 + max(StressLevel)
LEVELS: Final[Mapping[str, int]] = {
    "always": StressLevel.CALM,
    "stressed": StressLevel.STRESSED,
    "hard": StressLevel.HARD,
    "never": _NEVER,
}


def check_switches(path: str, switches: Mapping[str, str]) -> None:
    """Refuse a level that does not exist, and too many switches."""
    if len(switches) > SWITCHES_MAX:
        raise BadValue(path, len(switches), f"name at most {SWITCHES_MAX}")
    for name, level in switches.items():
        one_of(f"{path}.{name}", level, tuple(LEVELS))


@final
class Degradation:
    """The switches; `replace` changes them while the service serves."""

    __slots__ = ("_levels", "_source", "switches")

    def __init__(self, source: StressSource, switches: Mapping[str, str]) -> None:
        self._source = source
        self.replace(switches)

    def replace(self, switches: Mapping[str, str]) -> None:
        """Take other switches from now on, all or none."""
        check_switches("degrade", switches)
        self.switches = dict(switches)
        self._levels = {name: LEVELS[level] for name, level in switches.items()}

    def is_degraded(self, name: str, now_us: int) -> bool:
        """Whether this part is to be left out now."""
        level = self._levels.get(name)
        if level is None:
            raise BadValue("degrade", name, f"give it a level, one of {', '.join(LEVELS)}")
        return self._source.read(now_us).level >= level
