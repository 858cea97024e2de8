"""How many simulated requests the lab plays in a second of wall time, on one core.

The rig is that of the scenario `overload`: 32 workers of 10 ms, callers who wait for half a second,
in a world with a task a request: the whole server chain, and the queue alone. Counted is what
arrives, rejected or not. The lab itself is never compiled; the policies are, on a compiled build.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from benchmarks.rounds import Bars, build_of
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.server_chain import server_chain
from sluicegate.lab.scenarios.overload import rig
from sluicegate.lab.station_candidates import queue
from sluicegate.lab.task_mode import MakePolicy, run_policy
from sluicegate.policies import stack

PER_S = 20_000
ROUNDS = 3
SPANS_US = {2: 8_000_000, 10: 3_000_000}
WAYS: dict[str, MakePolicy] = {"server chain": server_chain, "queue alone": queue}


def per_s(make_policy: MakePolicy, played: Rig, seed: int) -> float:
    """Arrivals a second of this thread's CPU."""
    begun_ns = time.thread_time_ns()
    ledger = run_policy(played, make_policy, seed)
    return sum(ledger.offered_at) * 1e9 / (time.thread_time_ns() - begun_ns)


def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    print(f"Simulated requests a second, one core, policies {build_of(stack.__file__)}\n")
    seen: dict[str, list[float]] = {}
    for seed in range(ROUNDS):
        for load, span_us in SPANS_US.items():
            played = replace(rig(load), span_us=span_us)
            for name, make_policy in WAYS.items():
                seen.setdefault(f"{name}, {load}x", []).append(per_s(make_policy, played, seed))
    for name, rates in seen.items():
        print(f"  {name:<24} {median(rates):>10,.0f}  ({min(rates):,.0f} to {max(rates):,.0f})")
    print()
    least = min(median(rates) for name, rates in seen.items() if "chain" in name)
    bars.check(least >= PER_S, f"at least {PER_S:,} through the chain: {least:,.0f}")
    bars.exit()


if __name__ == "__main__":
    main()
