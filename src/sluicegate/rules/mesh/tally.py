"""Tally: what each rule has seen, by the names that dashboards for this format know.

A weight is split where it crosses a threshold: of ten hits that meet a limit with room for three,
three are near the limit and seven over it. How many keys there may be is bounded; what comes after
that is told under the key `OTHERS`, so nothing goes uncounted.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

TALLIES_MAX_DEFAULT: Final = 10_000
NEAR_RATIO_DEFAULT: Final = 0.8
OTHERS: Final = "others"


class TallyNow(NamedTuple):
    """The numbers of one key at an instant."""

    key: str
    total_hits: int
    over_limit: int
    near_limit: int
    over_limit_with_local_cache: int
    within_limit: int
    shadow_mode: int


@final
class Tally:
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

    def within(self, hits: int, after: int, near: int) -> None:
        """`hits` that were admitted and led to `after`; above `near` it is near the limit."""
        self.total_hits += hits
        self.within_limit += hits
        if after > near:
            self.near_limit += hits if after - hits >= near else after - near

    def over(self, hits: int, before: int, limit: int, near: int) -> None:
        """`hits` that met a counter at `before` and passed `limit`."""
        self.total_hits += hits
        if before >= limit:
            self.over_limit += hits
        else:
            self.over_limit += before + hits - limit
            self.near_limit += limit - (before if before > near else near)

    def over_from_cache(self, hits: int) -> None:
        """`hits` that were refused without asking, because the counter was known to be over."""
        self.total_hits += hits
        self.over_limit += hits
        self.over_limit_with_local_cache += hits

    def now(self) -> TallyNow:
        """The numbers as a value."""
        return TallyNow(
            self.key,
            self.total_hits,
            self.over_limit,
            self.near_limit,
            self.over_limit_with_local_cache,
            self.within_limit,
            self.shadow_mode,
        )


@final
class Tallies:
    """The tallies of all keys, whichever book they come from."""

    __slots__ = ("_by_key", "_others", "tallies_max", "uncounted")

    def __init__(self, tallies_max: int = TALLIES_MAX_DEFAULT) -> None:
        self._by_key: dict[str, Tally] = {}
        self._others = Tally(OTHERS)
        self.tallies_max = tallies_max
        self.uncounted = 0  # how often a key had no place of its own

    def of(self, key: str) -> Tally:
        """The tally of a key."""
        tally = self._by_key.get(key)
        if tally is None:
            if len(self._by_key) >= self.tallies_max:
                self.uncounted += 1
                return self._others
            tally = self._by_key[key] = Tally(key)
        return tally

    def now(self) -> list[TallyNow]:
        """Every key's numbers, and those of the others if there are any."""
        told = [tally.now() for tally in list(self._by_key.values())]
        if self.uncounted:
            told.append(self._others.now())
        return told
