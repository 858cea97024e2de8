"""Degradation: which parts of an answer the service leaves out while it is overloaded.

    [degrade]
    recommendations = "stressed"
    search_history = "hard"

Each switch has the level from which on its part is left out; `always` and `never` are for an
operator. The work asks `resilience.context.degraded("recommendations")`. A switch without a level
is a mistake in the program, and is named.

The service says which switches there are. Rules may give some of them another level, by the same
table, for as long as they are in force; what they say of others is for other services.

Cost: a look-up and a read of the level. Bounds: `SWITCHES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from threading import Lock
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue

SWITCHES_MAX: Final = 256


class OverloadLevel(IntEnum):
    """How overloaded a service is."""

    CALM = 0
    STRESSED = 1  # requests waited longer than their work takes
    HARD = 2  # CRITICAL ones too


LEVELS: Final[Mapping[str, int]] = {
    "always": OverloadLevel.CALM,
    "stressed": OverloadLevel.STRESSED,
    "hard": OverloadLevel.HARD,
    "never": 1 + max(OverloadLevel),
}
LEVEL_REMEDY: Final = f"give one of {', '.join(LEVELS)}"


def check_switches(path: str, switches: Mapping[str, Any]) -> None:
    """Refuse a level that does not exist, and too many switches."""
    if len(switches) > SWITCHES_MAX:
        raise BadValue(path, len(switches), f"name at most {SWITCHES_MAX}")
    for name, level in switches.items():
        if not isinstance(level, str) or level not in LEVELS:
            raise BadValue(f"{path}.{name}", level, LEVEL_REMEDY)


class SwitchState(NamedTuple):
    """A switch: its level, whether that is of the rules, and whether its part is left out."""

    part: str
    level: str
    by_rules: bool
    left_out: bool


@final
class Degradation:
    """The switches; `replace` and `overrule` change them while the service serves."""

    __slots__ = ("_level_at", "_levels", "_lock", "_own", "_rules", "switches")

    def __init__(
        self, level_at: Callable[[int], OverloadLevel], switches: Mapping[str, str]
    ) -> None:
        """`level_at` returns the level at an instant in microseconds."""
        self._level_at = level_at
        self._lock = Lock()  # of those who change; who asks sees one table or the other
        self._rules: dict[str, str] = {}
        self.replace(switches)

    def replace(self, switches: Mapping[str, str]) -> None:
        """Take other switches from now on, all or none; the rules' levels still go before."""
        check_switches("degrade", switches)
        with self._lock:
            self._own = dict(switches)
            self._set_levels()

    def overrule(self, levels: Mapping[str, str]) -> None:
        """Take the levels of the rules in force; what they do not name has its own again."""
        check_switches("degrade", levels)
        with self._lock:
            self._rules = dict(levels)
            self._set_levels()

    def is_degraded(self, name: str, now_us: int) -> bool:
        """Whether this part is to be left out now."""
        level = self._levels.get(name)
        if level is None:
            raise BadValue("degrade", name, f"name it there, and {LEVEL_REMEDY}")
        return self._level_at(now_us) >= level

    def states(self, overload: OverloadLevel) -> list[SwitchState]:
        """Return each switch, and what it does at this level."""
        rules = self._rules
        return [
            SwitchState(name, level, name in rules, overload >= LEVELS[level])
            for name, level in self.switches.items()
        ]

    def _set_levels(self) -> None:
        rules = self._rules
        self.switches = {name: rules.get(name, level) for name, level in self._own.items()}
        self._levels = {name: LEVELS[level] for name, level in self.switches.items()}
