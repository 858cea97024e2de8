"""Refusal cache: refusals of a remote service, held here until the instant that each of them named.

Whoever refused has said that nothing would be admitted before then, so asking again would only load
it. A smaller cost may well be admitted, and is not known here. `hold_us_max` bounds how long a
refusal is believed: whoever forgets a key or raises a limit over there is heard after that at the
latest. What refuses, and which refusals deserve belief, is for those who keep one of these.

Bound: `keys_max` keys; beyond, the oldest goes. A look takes no turn, a change does.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.store import Key
from sluicegate.stores.memory.light_lock import LightLock

HOLD_US_MAX: Final = 10_000_000
KEYS_MAX: Final = 100_000

K = TypeVar("K")
V = TypeVar("V")


@final
class CachedRefusal(Generic[V]):
    """What was said, for how much, when it was asked, and until when it holds."""

    __slots__ = ("cost", "sent_us", "until_us", "value")

    def __init__(self, value: V, cost: int, sent_us: int, until_us: int) -> None:
        self.value = value
        self.cost = cost
        self.sent_us = sent_us
        self.until_us = until_us


@final
class RefusalCache(Generic[K, V]):
    """Refusals by key."""

    __slots__ = ("_by_key", "_lock", "hold_us_max", "keys_max")

    def __init__(self, *, hold_us_max: int = HOLD_US_MAX, keys_max: int = KEYS_MAX) -> None:
        self._by_key: dict[K, CachedRefusal[V]] = {}
        self._lock = LightLock()
        self.hold_us_max = hold_us_max
        self.keys_max = keys_max

    def find(self, key: K, cost: int, now_us: int) -> CachedRefusal[V] | None:
        """Return what still holds for as much; None if it must be asked."""
        cached = self._by_key.get(key)
        if cached is None or cost < cached.cost:
            return None
        # Before it was asked: the clock went back, and nothing is known of then.
        if now_us >= cached.until_us or now_us < cached.sent_us:
            self.forget(key)
            return None
        return cached

    def remember(self, key: K, cost: int, value: V, sent_us: int, retry_us: int) -> None:
        """Believe a refusal; `sent_us` is from before it was asked."""
        until_us = sent_us + min(retry_us, self.hold_us_max)
        cached = CachedRefusal(value, cost, sent_us, until_us)
        by_key = self._by_key
        self._lock.acquire()
        try:
            if len(by_key) >= self.keys_max and key not in by_key:
                del by_key[next(iter(by_key))]  # the oldest
            by_key[key] = cached
        finally:
            self._lock.release()

    def forget(self, key: K) -> None:
        """The key may have room again."""
        self._lock.acquire()
        try:
            self._by_key.pop(key, None)
        finally:
            self._lock.release()

    def __len__(self) -> int:
        return len(self._by_key)


def with_age(before: Decision, elapsed_us: int) -> Decision:
    """Return a refusal as it is so much later: its waits have become shorter."""
    return Decision(
        False,
        before.remaining,
        max(before.retry_after_us - elapsed_us, 1),
        max(before.reset_after_us - elapsed_us, 1),
        before.reason,
        before.rule_id,
        limit=before.limit,
    )


@final
class Denials:
    """The refused keys of one rule: of refusals, those that will pass by waiting."""

    __slots__ = ("_cache",)

    def __init__(self, *, hold_us_max: int = HOLD_US_MAX, keys_max: int = KEYS_MAX) -> None:
        self._cache: Final[RefusalCache[Key, Decision]] = RefusalCache(
            hold_us_max=hold_us_max, keys_max=keys_max
        )

    def refusal(self, key: Key, cost: int, now_us: int) -> Decision | None:
        """Return the refusal that still holds for as much; None if the store must be asked."""
        cached = self._cache.find(key, cost, now_us)
        return None if cached is None else with_age(cached.value, now_us - cached.sent_us)

    def remember(self, key: Key, cost: int, decision: Decision, sent_us: int) -> None:
        """Believe a refusal; `sent_us` is from before the store was asked."""
        # A cost above the limit is none: the cost says so each time.
        if decision.retry_after_us > 0:
            self._cache.remember(key, cost, decision, sent_us, decision.retry_after_us)

    def forget(self, key: Key) -> None:
        """The key may have room again."""
        self._cache.forget(key)

    def __len__(self) -> int:
        return len(self._cache)
