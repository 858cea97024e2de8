"""Shield settings: for how long answers are cached, and the bounds of cache and waiters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sluicegate.apps.kv.shield.keys import KEY_CHARS_MAX
from sluicegate.policies.cache.coalesce import CoalesceSettings, CoalesceStats
from sluicegate.policies.cache.hot_key import HotKeySettings, HotKeyStats
from sluicegate.policies.settings import within

_SPAN_US_MAX: Final = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldSettings:
    """The dispatcher's defaults; those of `HotKeySettings` are explained there.

    `ttl_us` is the longest: up to `jitter` of it is taken off. `ahead_us` is the time that a fetch
    ahead has; `stale_wait_us` how long a reader waits for a new answer while an old one is at hand.
    """

    counters: int = 2_500
    saved_min: float = 0.5
    cache_bytes_max: int = 64 << 20
    entry_bytes_max: int = 4 << 20
    ttl_us: int = 3_500_000
    negative_ttl_us: int = 300_000
    stale_us: int = 30_000_000
    jitter: float = 0.1
    waiters_max: int = 10_000
    flights_max: int = 10_000
    overdue_us: int = 200_000
    ahead_max: int = 64
    ahead_us: int = 1_000_000
    stale_wait_us: int = 100_000
    tallies_max: int = 1_000

    def __post_init__(self) -> None:
        within("shield.ahead_max", self.ahead_max, 0, 1 << 16)
        within("shield.ahead_us", self.ahead_us, 1, _SPAN_US_MAX)
        within("shield.stale_wait_us", self.stale_wait_us, 1, _SPAN_US_MAX)
        within("shield.tallies_max", self.tallies_max, 1, 1 << 20)
        self.hot_key()  # the rest is checked by those whom it is for
        self.coalesce()

    def hot_key(self) -> HotKeySettings:
        """Those of the counter and the cache."""
        return HotKeySettings(
            counters=self.counters,
            key_length_max=KEY_CHARS_MAX,
            saved_min=self.saved_min,
            cache_bytes_max=self.cache_bytes_max,
            entry_bytes_max=self.entry_bytes_max,
            ttl_us=self.ttl_us,
            negative_ttl_us=self.negative_ttl_us,
            stale_us=self.stale_us,
            jitter=self.jitter,
        )

    def coalesce(self) -> CoalesceSettings:
        """Those of the flights."""
        return CoalesceSettings(
            waiters_max=self.waiters_max, flights_max=self.flights_max, overdue_us=self.overdue_us
        )


class ShieldStats(NamedTuple):
    """Levels now, counts since the beginning."""

    hot: HotKeyStats
    flights: CoalesceStats
    writing: int  # keys with a write under way
    ahead: int  # fetches ahead under way
    ahead_skipped: int  # not begun, since there were too many
    ahead_failed: int
    barred: int  # answers not kept, since the key was being written
    expired: int  # kept rows whose own time was over
    stale_served: int  # old answers instead of an error, or of a long wait
    led_astray: int = 0  # who joined a fetch that was refused for its leader's own quota


class HotPlace(NamedTuple):
    """One line of the board."""

    key: str  # without a turn
    guaranteed: int  # of the reads of the last one to two windows, surely
    served: int  # from the cache, or from another's fetch
    forwarded: int
    size_bytes: int  # of the last answer
