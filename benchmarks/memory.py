"""Bytes for each tracked key at 1,000,000 keys, the key's own text excluded.

Every candidate runs in a process of its own: it makes the keys, notes its resident memory, takes
once for each key, and notes it again. The peers are those of `peers.py`, asked the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

import limits.strategies
import pyrate_limiter

from benchmarks import peers
from benchmarks.rounds import Bars, build_of
from sluicegate import Algorithm, Limiter
from sluicegate.limits import limiter

KEYS = 1_000_000
ROUNDS = 3


def ours(algorithm: Algorithm) -> Callable[[], peers.Call]:
    """A limiter of ours by this algorithm, at a limit that one hit does not reach."""
    return lambda: Limiter("100/hour", algorithm=algorithm, keys_max=2 * KEYS).take


OURS = {algorithm.value: ours(algorithm) for algorithm in Algorithm}
# The peers by the algorithm of ours that they are held against.
PEERS: dict[str, dict[str, Callable[[], peers.Call]]] = {
    "gcra": {
        "throttled-py gcra": lambda: peers.throttled_by("gcra", KEYS),
        "pyrate-limiter gcra": lambda: peers.pyrate_by(pyrate_limiter.GCRA),
    },
    "fixed_window": {
        "limits fixed window": lambda: peers.limits_by(limits.strategies.FixedWindowRateLimiter),
        "throttled-py fixed window": lambda: peers.throttled_by("fixed_window", KEYS),
    },
    "token_bucket": {
        "throttled-py token bucket": lambda: peers.throttled_by("token_bucket", KEYS),
        "pyrate-limiter token bucket": lambda: peers.pyrate_by(pyrate_limiter.TokenBucket),
        "hyx token bucket": peers.hyx_per_key,
    },
    "sliding_window": {
        "limits sliding window": lambda: peers.limits_by(
            limits.strategies.SlidingWindowCounterRateLimiter
        ),
        "throttled-py sliding window": lambda: peers.throttled_by("sliding_window", KEYS),
    },
    "sliding_log": {
        "limits moving window": lambda: peers.limits_by(limits.strategies.MovingWindowRateLimiter),
        "pyrate-limiter log": lambda: peers.pyrate_by(None),
    },
}
CANDIDATES = OURS | {name: make for group in PEERS.values() for name, make in group.items()}


def resident_bytes() -> int:
    """This process's resident memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(name: str, count: int) -> float:
    """Bytes a key of one candidate, in this process."""
    keys = [f"user:{n:07}" for n in range(count)]
    call = CANDIDATES[name]()
    call("warm")
    gc.collect()
    before = resident_bytes()
    for key in keys:
        call(key)
    gc.collect()
    return (resident_bytes() - before) / count


def measured_apart(name: str) -> float:
    """The same in a process of its own, the median of some rounds."""
    command = [sys.executable, "-m", "benchmarks.memory", "--measure", name, "--keys", str(KEYS)]
    runs = [subprocess.run(command, stdout=subprocess.PIPE, check=True) for _ in range(ROUNDS)]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    """Measure all, print a table, and judge."""
    bars = Bars()
    print(f"sluicegate is {build_of(limiter.__file__)}; bytes a key at {KEYS:,} keys")
    size = {}
    for name in CANDIDATES:
        size[name] = measured_apart(name)
        print(f"  {size[name]:7.1f}  {'sluicegate ' if name in OURS else ''}{name}", flush=True)
    print()
    leanest = min((name for name in CANDIDATES if name not in OURS), key=lambda name: size[name])
    for algorithm in ("gcra", "fixed_window"):
        share = size[algorithm] / size[leanest]
        bars.check(share <= 1 / 3, f"{algorithm}: at most 1/3 of {leanest}: {share:.2f}")
    for algorithm in ("token_bucket", "sliding_window", "sliding_log"):
        peer = min(PEERS[algorithm], key=lambda name: size[name])
        share = size[algorithm] / size[peer]
        bars.check(share <= 1 / 2, f"{algorithm}: at most 1/2 of {peer}: {share:.2f}")
    bars.exit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measure", metavar="NAME", choices=CANDIDATES, help="one, in this process"
    )
    parser.add_argument("--keys", type=int, default=KEYS, help="of that one")
    asked = parser.parse_args()
    if asked.measure:
        print(asyncio.run(measure(asked.measure, asked.keys)))
    else:
        main()
