"""RefusalCache: refusals of somebody far away, held here until the instant that each of them named.

Whoever refused has said that nothing would be admitted before then, so asking again would only load
it. A smaller cost may well be admitted, and is not known here. `believed_us_max` bounds how long a
refusal is believed: whoever forgets a key or raises a limit over there is heard after that at the
latest. What refuses, and which refusals deserve belief, is for those who keep one of these.

Bound: `keys_max` keys; beyond, the oldest goes. A look takes no turn, a change does.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

from sluicegate.contracts.decision import Decision
from sluicegate.stores.memory.light_lock import LightLock

BELIEVED_US_MAX: Final = 10_000_000
KEYS_MAX: Final = 100_000

K = TypeVar("K")
V = TypeVar("V")


@final
class CachedRefusal(Generic[V]):
    """What was said, for how much, when it was asked, and until when it holds."""

    __slots__ = ("asked_us", "cost", "said", "until_us")

    def __init__(self, said: V, cost: int, asked_us: int, until_us: int) -> None:
        self.said = said
        self.cost = cost
        self.asked_us = asked_us
        self.until_us = until_us


@final
class RefusalCache(Generic[K, V]):
    """Refusals by key."""

    __slots__ = ("_by_key", "_lock", "believed_us_max", "keys_max")

    def __init__(self, *, believed_us_max: int = BELIEVED_US_MAX, keys_max: int = KEYS_MAX) -> None:
        self._by_key: dict[K, CachedRefusal[V]] = {}
        self._lock = LightLock()
        self.believed_us_max = believed_us_max
        self.keys_max = keys_max

    def find(self, key: K, cost: int, now_us: int) -> CachedRefusal[V] | None:
        """What still holds for as much; None if it must be asked."""
        belief = self._by_key.get(key)
        if belief is None or cost < belief.cost:
            return None
        # Before it was asked: the clock went back, and nothing is known of then.
        if now_us >= belief.until_us or now_us < belief.asked_us:
            self.forget(key)
            return None
        return belief

    def remember(self, key: K, cost: int, said: V, asked_us: int, retry_us: int) -> None:
        """Believe a refusal; `asked_us` is from before it was asked."""
        until_us = asked_us + min(retry_us, self.believed_us_max)
        belief = CachedRefusal(said, cost, asked_us, until_us)
        by_key = self._by_key
        self._lock.acquire()
        try:
            if len(by_key) >= self.keys_max and key not in by_key:
                del by_key[next(iter(by_key))]  # the oldest
            by_key[key] = belief
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


def aged(was: Decision, passed_us: int) -> Decision:
    """A refusal as it is so much later: its waits have become shorter."""
    return Decision(
        False,
        was.remaining,
        max(was.retry_after_us - passed_us, 1),
        max(was.reset_after_us - passed_us, 1),
        was.reason,
        was.rule_id,
    )
