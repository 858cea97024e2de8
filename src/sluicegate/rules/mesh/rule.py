"""Rule: what a file for a mesh says of one path, as compiled for look-up and counting.

A million rules say few different things. So a rule here is its name and a *form*, all that it
says, which is kept once for all rules that say the same. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias, final

from sluicegate.contracts.checks import MeshLimit
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rule import Rule
from sluicegate.rules.mesh.rule_stats import RuleStats

Path: TypeAlias = "tuple[tuple[str, str | None], ...]"

# How the value at one level of a path enters the key of a counter.
EXACT: Final = 0  # the rule says it
VARYING: Final = 1  # the request says it
SHARED_BY_PATTERN: Final = 2  # it does not: all values of the pattern share a counter


class Semantics(Enum):
    """How a request with several descriptors is decided, and how a rule counts by default."""

    ENVOY = "envoy"  # each by itself, in fixed windows, refused hits counted
    SLUICEGATE = "sluicegate"  # all or none, in sliding windows


@final
class Counting:
    """One limit of a rule: how much, and under which rule of a limiter it is counted.

    With `above` that rule has room for one unit more than the limit: so a limiter that counts what
    it refuses tells a counter that is full from one that has been passed.
    """

    __slots__ = (
        "above",
        "blocks",
        "count",
        "limit",
        "period_us",
        "room",
        "rule",
        "suffix",
        "wire_limit",
    )

    def __init__(
        self,
        rule: str | Rule,
        limit: Limit | None,
        wire_limit: MeshLimit,
        *,
        above: bool,
        suffix: str,
    ) -> None:
        self.rule: Final[str | Rule] = rule
        self.wire_limit: Final = wire_limit
        self.count: Final = wire_limit.requests_per_unit
        self.above: Final = above
        self.blocks: Final = limit is None  # a limit of nothing, that no rule can say
        self.period_us: Final = 1 if limit is None else limit.period_us
        room = 0 if limit is None else limit.burst
        self.room: Final = room - 1 if above else room
        # As it is meant, without that one unit.
        self.limit = limit
        if above and limit is not None:
            self.limit = _less_one(limit)
        self.suffix: Final = suffix  # behind the rule's name, where a rule has several limits


def _less_one(limit: Limit) -> Limit | None:
    if limit.count == 1:
        return None
    return Limit(limit.count - 1, period_us=limit.period_us, algorithm=limit.algorithm)


@final
class Form:
    """All that a rule says besides its path. Rules that say the same share it."""

    __slots__ = (
        "countings",
        "levels",
        "metadata",
        "names",
        "only",
        "priority",
        "quota",
        "real",
        "replaces",
        "shadow",
        "unlimited",
        "varying",
    )

    def __init__(
        self,
        countings: tuple[Counting, ...],
        levels: tuple[int, ...],
        *,
        names: tuple[str, ...] = (),
        replaces: frozenset[str] = frozenset(),
        shadow: bool = False,
        quota: bool = False,
        priority: Criticality | None = None,
        real: tuple[int, ...] = (),
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        self.countings: Final = countings
        self.only: Final = countings[0] if len(countings) == 1 else None
        self.unlimited: Final = not countings
        self.levels: Final = levels
        # The level of the one value that varies; -1 if none does, -2 if several do.
        varying = [at for at, level in enumerate(levels) if level == VARYING]
        self.varying: Final = -1 if not varying else varying[0] if len(varying) == 1 else -2
        self.names: Final = names
        self.replaces: Final = replaces
        self.shadow: Final = shadow
        self.quota: Final = quota
        self.priority: Final = priority
        self.real: Final = real  # the levels whose real values stand in the key of the statistics
        self.metadata: Final = metadata


@final
class MeshRule:
    """One rule. `stats` are of the rule as a whole, from their first use on."""

    __slots__ = ("form", "rule_id", "stats")

    def __init__(self, form: Form, rule_id: str) -> None:
        self.form: Final = form
        self.rule_id: Final = rule_id
        self.stats: RuleStats | None = None

    def __repr__(self) -> str:
        return f"<MeshRule {self.rule_id}>"


_SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * _SECOND_US
# The units by their number in the protocol.
UNIT_NAMES: Final = (
    "UNKNOWN",
    "SECOND",
    "MINUTE",
    "HOUR",
    "DAY",
    "MONTH",
    "YEAR",
    "WEEK",
)
UNIT_US: Final = (
    0,
    _SECOND_US,
    60 * _SECOND_US,
    3_600 * _SECOND_US,
    DAY_US,
    30 * DAY_US,
    365 * DAY_US,
    7 * DAY_US,
)
COUNT_MAX: Final = (1 << 32) - 1  # what the protocol can tell


def default_algorithm(semantics: Semantics) -> Algorithm:
    """How a rule counts that does not say how."""
    if semantics is Semantics.ENVOY:
        return Algorithm.FIXED_WINDOW
    return Algorithm.SLIDING_WINDOW
