"""How many simulated requests the lab plays in a second of wall time, on one core.

The rig is that of the scenario `overload`: 32 workers of 10 ms, callers who wait for half a second.
`tasks` is a world with a task a request and the whole server chain; `kernels` is the
mode without tasks. Counted is what arrives, refused or not. The lab itself is never compiled; the
policies are, on a compiled build.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from benchmarks.rounds import Bars, build_of
from sluicegate.lab import baselines, kernel_mode, task_mode
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.server_chain import server_chain
from sluicegate.lab.scenarios.overload import rig
from sluicegate.lab.station_candidates import queue
from sluicegate.policies import stack

TASKS_PER_S = 20_000
KERNELS_PER_S = 100_000
ROUNDS = 3
SPANS_US = {2: 8_000_000, 10: 3_000_000}


def per_s(play: Callable[[Rig, int], RunLedger], played: Rig, seed: int) -> float:
    """Arrivals a second of this thread's CPU."""
    begun_ns = time.thread_time_ns()
    ledger = play(played, seed)
    return sum(ledger.offered_at) * 1e9 / (time.thread_time_ns() - begun_ns)


def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    print(f"Simulated requests a second, one core, policies {build_of(stack.__file__)}\n")
    ways: dict[str, Callable[[Rig, int], RunLedger]] = {
        "tasks, server chain": lambda rig, seed: task_mode.run_policy(rig, server_chain, seed),
        "tasks, queue alone": lambda rig, seed: task_mode.run_policy(rig, queue, seed),
        "kernels": lambda rig, seed: kernel_mode.run_queue(rig, baselines.TABLE["lifo"], seed),
    }
    seen: dict[str, list[float]] = {}
    for seed in range(ROUNDS):
        for load, span_us in SPANS_US.items():
            played = replace(rig(load), span_us=span_us)
            for name, play in ways.items():
                seen.setdefault(f"{name}, {load}x", []).append(per_s(play, played, seed))
    for name, rates in seen.items():
        print(f"  {name:<24} {median(rates):>10,.0f}  ({min(rates):,.0f} to {max(rates):,.0f})")
    print()
    least = min(median(rates) for name, rates in seen.items() if "chain" in name)
    bars.check(least >= TASKS_PER_S, f"at least {TASKS_PER_S:,} through the chain: {least:,.0f}")
    least = min(median(rates) for name, rates in seen.items() if "kernels" in name)
    bars.check(least >= KERNELS_PER_S, f"at least {KERNELS_PER_S:,} in kernels: {least:,.0f}")
    bars.exit()


if __name__ == "__main__":
    main()
