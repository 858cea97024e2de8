"""Refusals: a pair that was refused is refused here until the instant that the refusal named.

How a refusal is held is in `stores/memory/refusal_cache.py`; here is which are held. What a failure
policy refused is not: nobody has counted it. Nor is a refusal for what the service lacks: one
request in ten that is shed must not become all requests of a pair.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.client.answer import DENIAL, Answer
from sluicegate.client.pair import Pair
from sluicegate.contracts.reasons import GrpcCode
from sluicegate.stores.memory.light_lock import LightLock
from sluicegate.stores.memory.refusal_cache import HOLD_US_MAX, KEYS_MAX, RefusalCache, with_age

PAIRS_MAX: Final = KEYS_MAX


@final
class PairRefusals:
    """The refused pairs of one client; `pairs_max` 0 believes none."""

    __slots__ = ("_cache", "_lock", "found")

    def __init__(self, *, hold_us_max: int = HOLD_US_MAX, pairs_max: int = PAIRS_MAX) -> None:
        self._cache: Final[RefusalCache[Pair, Answer]] = RefusalCache(
            hold_us_max=hold_us_max, keys_max=pairs_max
        )
        self._lock = LightLock()  # of those who count
        self.found = 0  # refusals told from here

    def find(self, pair: Pair, cost: int, now_us: int) -> Answer | None:
        """Return the refusal that still holds for as much; None if the service must be asked."""
        cached = self._cache.find(pair, cost, now_us)
        if cached is None:
            return None
        self._lock.acquire()
        self.found += 1
        self._lock.release()
        before = cached.value
        decision = with_age(before.decision, now_us - cached.sent_us)
        return Answer(decision, before.limit, before.status, DENIAL)

    def remember(self, pair: Pair, cost: int, answer: Answer, sent_us: int) -> None:
        """Believe a refusal; `sent_us` is from before the service was asked."""
        reason, retry_us = answer.reason, answer.retry_after_us
        if reason is None or retry_us <= 0 or answer.degraded or not self._cache.keys_max:
            return
        if reason.grpc_code is GrpcCode.RESOURCE_EXHAUSTED:
            self._cache.remember(pair, cost, answer, sent_us, retry_us)

    def forget(self, pair: Pair) -> None:
        """The pair may have room again."""
        self._cache.forget(pair)

    def __len__(self) -> int:
        return len(self._cache)
