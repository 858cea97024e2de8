"""Peers: every other Python limiter that is measured, called the way its documentation says.

Each maker returns a call `key -> object` on a limit that is never reached. Makers are cheap to read
on purpose: whoever doubts a ratio should look here first.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import aiolimiter
import limits
import limits.storage
import limits.strategies
import pyrate_limiter
import throttled
from hyx.ratelimit import TokenBucketLimiter

Call = Callable[[str], object]
PLENTY = 1_000_000_000


def limits_by(strategy: type[limits.strategies.RateLimiter]) -> Call:
    """`limits` on its memory storage."""
    hit = strategy(limits.storage.MemoryStorage()).hit
    item = limits.parse(f"{PLENTY}/hour")
    return lambda key: hit(item, key)


def throttled_by(algorithm: str, keys: int) -> Call:
    """`throttled-py` on its memory store, with room for all keys (its default is 1,024)."""
    throttle = throttled.Throttled(
        using=algorithm,
        quota=throttled.per_sec(PLENTY, burst=PLENTY),
        store=throttled.MemoryStore(options={"MAX_SIZE": keys + 1}),
    )
    return throttle.limit


class _BucketPerKey(pyrate_limiter.BucketFactory):
    def __init__(self, make: Callable[[], pyrate_limiter.AbstractBucket]) -> None:
        self.make = make
        self.by_name: dict[str, pyrate_limiter.AbstractBucket] = {}

    def wrap_item(self, name: str, weight: int = 1) -> pyrate_limiter.RateItem:
        return pyrate_limiter.RateItem(name, time.monotonic_ns() // 1_000_000, weight=weight)

    def get(self, item: pyrate_limiter.RateItem) -> pyrate_limiter.AbstractBucket:
        bucket = self.by_name.get(item.name)
        if bucket is None:
            bucket = self.by_name[item.name] = self.make()
        return bucket


def pyrate_by(algorithm: Callable[[], pyrate_limiter.StateAlgorithm] | None) -> Call:
    """`pyrate-limiter`, a bucket for each key through its documented factory; None is its log."""
    rates = [pyrate_limiter.Rate(PLENTY, pyrate_limiter.Duration.HOUR)]
    if algorithm is None:
        factory = _BucketPerKey(lambda: pyrate_limiter.InMemoryBucket(rates))
    else:
        factory = _BucketPerKey(lambda: pyrate_limiter.StateBucket(rates, algorithm()))
    limiter = pyrate_limiter.Limiter(factory)
    return lambda key: limiter.try_acquire(key, blocking=False)


def step(coroutine: object) -> None:
    """Run a coroutine that does not wait to its end; the cheapest way to call an async limiter."""
    try:
        coroutine.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise RuntimeError("the coroutine waited, so this would measure something else")


def aiolimiter_per_key() -> Call:
    """`aiolimiter`, a limiter for each key: it has no keys of its own. Needs a running loop."""
    by_key: dict[str, aiolimiter.AsyncLimiter] = {}

    def call(key: str) -> None:
        limiter = by_key.get(key)
        if limiter is None:
            limiter = by_key[key] = aiolimiter.AsyncLimiter(PLENTY, 3600)
        step(limiter.acquire())

    return call


def hyx_per_key() -> Call:
    """`hyx`'s token bucket, one for each key: it has no keys of its own. Needs a running loop."""
    by_key: dict[str, TokenBucketLimiter] = {}

    def call(key: str) -> None:
        bucket = by_key.get(key)
        if bucket is None:
            bucket = by_key[key] = TokenBucketLimiter(PLENTY, 3600, PLENTY)
        step(bucket.acquire())

    return call


def hyx_bucket() -> Callable[[], None]:
    """One token bucket of `hyx` alone. Needs a running loop."""
    bucket = TokenBucketLimiter(PLENTY, 3600, PLENTY)
    return lambda: step(bucket.acquire())
