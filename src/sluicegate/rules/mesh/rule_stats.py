"""Statistics of each rule, by the names that dashboards for this format know.

A cost is split where it crosses a threshold: of ten hits that meet a limit with room for three,
three are near the limit and seven over it. How many keys there may be is bounded; what comes after
that is counted under the key `OTHERS`, so nothing goes uncounted.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

STATS_MAX_DEFAULT: Final = 10_000
NEAR_RATIO_DEFAULT: Final = 0.8
OTHERS: Final = "others"


class RuleStatsValues(NamedTuple):
    """The numbers of one key at an instant."""

    key: str
    total_hits: int
    over_limit: int
    near_limit: int
    over_limit_with_local_cache: int
    within_limit: int
    shadow_mode: int


@final
class RuleStats:
    """The numbers of one key."""

    __slots__ = (
        "key",
        "near_limit",
        "over_limit",
        "over_limit_with_local_cache",
        "shadow_mode",
        "total_hits",
        "within_limit",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.total_hits = 0
        self.over_limit = 0
        self.near_limit = 0
        self.over_limit_with_local_cache = 0
        self.within_limit = 0
        self.shadow_mode = 0

    def within(self, cost: int, after: int, near: int) -> None:
        """`hits` that were admitted and led to `after`; above `near` it is near the limit."""
        self.total_hits += cost
        self.within_limit += cost
        if after > near:
            self.near_limit += cost if after - cost >= near else after - near

    def over(self, cost: int, before: int, limit: int, near: int) -> None:
        """`hits` that met a counter at `before` and passed `limit`."""
        self.total_hits += cost
        if before >= limit:
            self.over_limit += cost
        else:
            self.over_limit += before + cost - limit
            self.near_limit += limit - (before if before > near else near)

    def over_from_cache(self, cost: int) -> None:
        """`hits` that were refused without asking, because the counter was known to be over."""
        self.total_hits += cost
        self.over_limit += cost
        self.over_limit_with_local_cache += cost

    def now(self) -> RuleStatsValues:
        """The numbers as a value."""
        return RuleStatsValues(
            self.key,
            self.total_hits,
            self.over_limit,
            self.near_limit,
            self.over_limit_with_local_cache,
            self.within_limit,
            self.shadow_mode,
        )


@final
class RuleStatsTable:
    """The statistics of all keys, whichever rule set they come from."""

    __slots__ = ("_by_key", "_others", "tallies_max", "uncounted")

    def __init__(self, tallies_max: int = STATS_MAX_DEFAULT) -> None:
        self._by_key: dict[str, RuleStats] = {}
        self._others = RuleStats(OTHERS)
        self.tallies_max = tallies_max
        self.uncounted = 0  # how often a key had no place of its own

    def of(self, key: str) -> RuleStats:
        """The statistics of a key."""
        stats = self._by_key.get(key)
        if stats is None:
            if len(self._by_key) >= self.tallies_max:
                self.uncounted += 1
                return self._others
            stats = self._by_key[key] = RuleStats(key)
        return stats

    def now(self) -> list[RuleStatsValues]:
        """Every key's numbers, and those of the others if there are any."""
        rows = [stats.now() for stats in list(self._by_key.values())]
        if self.uncounted:
            rows.append(self._others.now())
        return rows
