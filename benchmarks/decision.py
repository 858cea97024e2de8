"""One decision in this process: `Limiter.take` beside every other Python limiter we know of.

One warm key, then 100,000 keys at random, then one bucket object alone. All take the path that
admits. Ours has its lock, its eviction and its expiry switched on, as always. A last part walks to
1,000,000 keys and shows the dearest single call.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time

import limits.strategies
import pyrate_limiter

from benchmarks import peers
from benchmarks.rounds import (
    Bars,
    Result,
    build_of,
    calls_of,
    calls_over,
    interleaved,
    print_results,
    ratio,
)
from sluicegate import Limiter
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.limits import limiter
from sluicegate.system import now_us

CALLS = 20_000
KEYS = 100_000
KEYS_HUGE = 1_000_000
RULE = "1000000/second"
WORST_CALL_US = 2_000

OURS = "sluicegate"
LIMITS = "limits"


def keyed(keys: int) -> dict[str, peers.Call]:
    """Every limiter that has keys, or is given one object a key."""
    return {
        OURS: Limiter(RULE).take,
        LIMITS: peers.limits_by(limits.strategies.FixedWindowRateLimiter),
        "throttled-py": peers.throttled_by("fixed_window", keys),
        "throttled-py gcra": peers.throttled_by("gcra", keys),
        "pyrate-limiter": peers.pyrate_by(None),
        "pyrate-limiter gcra": peers.pyrate_by(pyrate_limiter.GCRA),
        "aiolimiter": peers.aiolimiter_per_key(),
    }


def one_key() -> dict[str, Result]:
    """The same key again and again."""
    again = ["user:1"] * CALLS
    results = interleaved({name: calls_over(call, again) for name, call in keyed(1).items()})
    print_results("One warm key", results, OURS)
    return results


def many_keys() -> dict[str, Result]:
    """Keys at random out of 100,000, each touched before."""
    keys = [f"user:{n}" for n in range(KEYS)]
    draw = random.Random(1)
    order = [draw.choice(keys) for _ in range(KEYS)]
    calls = keyed(KEYS)
    for call in calls.values():
        calls_over(call, keys)()
    results = interleaved({name: calls_over(call, order) for name, call in calls.items()})
    print_results(f"{KEYS:,} keys at random", results, OURS)
    return results


def one_bucket() -> dict[str, Result]:
    """A bucket object alone, no keys, no lock; ours asks the clock at every call."""
    bucket = TokenBucket(peers.PLENTY, 1_000_000)
    results = interleaved(
        {
            OURS: calls_of(lambda: bucket.take(1, now_us()), CALLS),
            "hyx": calls_of(peers.hyx_bucket(), CALLS),
        }
    )
    print_results("One token bucket object", results, OURS)
    return results


def dearest_call_us() -> float:
    """The most thread CPU that one call takes on the way to a million keys."""
    take = Limiter("100/hour").take
    keys = [f"user:{n}" for n in range(KEYS_HUGE)]
    gc.collect()
    dearest_ns = 0
    for key in keys:
        started_ns = time.thread_time_ns()
        take(key)
        dearest_ns = max(dearest_ns, time.thread_time_ns() - started_ns)
    return dearest_ns / 1_000


async def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    build = build_of(limiter.__file__)
    print(f"sluicegate is {build}")
    one, many, bucket = one_key(), many_keys(), one_bucket()
    worst_us = dearest_call_us()
    print(f"\nDearest of {KEYS_HUGE:,} first calls: {worst_us:,.0f} us of thread CPU\n")
    on_one, on_many = ratio(one, LIMITS, OURS), ratio(many, LIMITS, OURS)
    bars.check(on_one >= 10, f"at least 10 x limits on one key: {on_one:.1f} x")
    bars.check(on_many >= 8, f"at least 8 x limits over {KEYS:,} keys: {on_many:.1f} x")
    for results in (one, many, bucket):
        for name in results:
            if name != OURS:
                times = ratio(results, name, OURS)
                bars.check(times > 1, f"faster than {name}: {times:.1f} x")
    bars.check(worst_us <= WORST_CALL_US, f"no call above {WORST_CALL_US:,} us: {worst_us:,.0f} us")
    bars.exit()


if __name__ == "__main__":
    asyncio.run(main())
