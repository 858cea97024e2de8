"""Nanoseconds a call for each kernel, interpreted and compiled, from the same sources.

Two peers by other hands stand in the same rounds: the C++ frequent-items sketch of `datasketches`
beside `space_saving`, and the `ddsketch` package beside `windowed_quantile`. Then come the recall
and the memory of `space_saving`, and what a million rules cost a look-up.

The parent runs one child a round for each build, in turn. The interpreted child imports the .py
files that lie beside the compiled ones.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import timeit
import tracemalloc
import uuid
from collections import Counter
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)

from benchmarks.rounds import ROUNDS, Bars

CALL_S = 0.02  # about how long each case is timed in a round

# What the cases share: a clock that ticks, draws, latencies, and keys as skewed as real ones are.
STREAMS = """
import random
from itertools import accumulate, count, cycle
draws = random.Random(1)
tick = count(1_790_000_000_000_000, 100).__next__
draw = cycle([draws.random() for _ in range(1000)]).__next__
latency = cycle([draws.lognormvariate(9, 1) for _ in range(1000)]).__next__
odds = list(accumulate((rank + 1) ** -0.99 for rank in range(100_000)))
names = [f"key:{rank}" for rank in range(100_000)]
key = cycle(draws.choices(names, cum_weights=odds, k=200_000)).__next__
"""

# Kernel, what is imported, what is made once, and the call that is timed.
CASES: tuple[tuple[str, str, str, str], ...] = (
    ("(the tick alone)", "time", "", "tick()"),
    ("adaptive_lifo", "AdaptiveLifo", "q = AdaptiveLifo(length_max=1000); lost = []",
     "q.push(1, 1000, tick(), lost); q.pop(tick(), lost)"),
    ("backoff", "Backoff, BackoffSettings", "it = Backoff(BackoffSettings())",
     "it.wait_us(3, draw())"),
    ("breaker", "Circuit, CircuitSettings, SUCCESS", "it = Circuit(CircuitSettings())",
     "t = tick(); it.leave(it.enter(t), SUCCESS, 100, t, 0.5)"),
    ("burst_allowance", "BurstAllowance",
     "it = BurstAllowance()",
     "t = tick(); it.record_refusal(300.0, t); it.record_arrival(300.0, t)"),
    ("client_throttle", "ThrottleWindow", "it = ThrottleWindow()",
     "t = tick(); it.admit(draw(), t); it.record_end(t); it.record_accept(t)"),
    ("codel", "Codel", "it = Codel()", "it.drop(1000, tick())"),
    ("burn_rate", "BurnWindows", "it = BurnWindows()", "it.add(1, 10, tick())"),
    ("call_plan", "call_odds", "it = call_odds", "it(0.3, 3, lasting=0.5, budget=0.1)"),
    ("aimd", "Aimd", "it = Aimd()", "it.update(10_000, 15, False, draw())"),
    ("gradient2", "Gradient2", "it = Gradient2()",
     "it.update(10_000, 15, False, draw())"),
    ("vegas", "Vegas", "it = Vegas()", "it.update(10_000, 15, False, draw())"),
    ("cost_model", "CostEstimate", "it = CostEstimate()", "it.learn(20, 0, 20, 4000)"),
    ("count_min", "CountMin, fingerprint", "it = CountMin(16_384)", "it.add(fingerprint(key()))"),
    ("fixed_window", "FixedWindow", "it = FixedWindow(10**6, 10**6)", "it.take(1, tick())"),
    ("gcra", "Gcra", "it = Gcra(10**6, 10**6)", "it.take(1, tick())"),
    ("glob_index", "GlobIndex", "it = GlobIndex([f'/api/v{n}/*' for n in range(100)])",
     "it.find('/api/v7/users')"),
    ("hash_ring", "Rendezvous", "it = Rendezvous({f'node-{n}': 1.0 for n in range(10)})",
     "it.owner('user:42')"),
    ("image_fit", "fit_image", "", "fit_image(3000, 2000, 400, 300, 'cover', True)"),
    ("latency_ratio", "LatencyRatio", "it = LatencyRatio()", "it.add(latency(), tick())"),
    ("lru_ttl", "LruTtl", ("it = LruTtl(1 << 30, ttl_us=1 << 50);"
     "[it.put(k, 1, 100, epoch=0, now_us=tick(), draw=0.5) for k in names[:1000]]"),
     "it.get('key:7', tick(), 0.5)"),
    ("moving_rate", "TwoSpeedRate", "it = TwoSpeedRate()", "it.add(1, tick())"),
    ("outlier", "HostStats, SweepSettings, sweep",
     ("it = [HostStats(f'h{n}', requests=100, failures=n % 3) for n in range(10)];"
     "settings = SweepSettings()"), "sweep(it, settings, tick(), 0.5)"),
    ("p2_quantile", "P2Quantile", "it = P2Quantile(0.95)", "it.add(latency())"),
    ("path_index", "PathIndex", "it = PathIndex([('/api/v1/users/{id}/orders', 1)])",
     "it.find('/api/v1/users/42/orders')"),
    ("perceptual_hash", "bands_near", "", "bands_near(int(draw() * 2**64), 4)"),
    ("quota_tuning, a month", "propose", "usage = [1000 + n % 24 for n in range(720)]",
     "propose(usage)"),
    ("retry_budget", "RetryBudget", "it = RetryBudget()",
     "t = tick(); it.deposit(t); it.withdraw(t)"),
    ("rule_index", "RuleIndex", "it = RuleIndex(((('k', f'v{n}'),), n) for n in range(1000))",
     "it.find((('k', 'v42'),))"),
    ("sliding_window", "SlidingWindow", "it = SlidingWindow(10**6, 10**6)", "it.take(1, tick())"),
    ("sliding_window, 10 cells", "SlidingCells", "it = SlidingCells(10**6, 10**6, 10)",
     "it.take(1, tick())"),
    ("sliding_window, log of 100", "SlidingLog", "it = SlidingLog(100, 10**4)",
     "it.take(1, tick())"),
    ("space_saving", "SpaceSaving", "it = SpaceSaving(2048)", "it.update(key())"),
    ("suppression", "Diffusion", "it = Diffusion()", "it.admit(0.2)"),
    ("token_bucket", "TokenBucket", "it = TokenBucket(10**6, 10**6)", "it.take(1, tick())"),
    ("two_choices", "HostLoad, LoadSettings, choose",
     "it = [HostLoad(LoadSettings()) for _ in range(10)]",
     "choose(it, tick(), draw(), draw())"),
    ("utilization_shed", "UtilizationShed", "it = UtilizationShed(); it.observe(0.65)",
     "it.admits(3, draw())"),
    ("weighted_queue", "QueueClass, WeightedQueue",
     "q = WeightedQueue([QueueClass(n) for n in range(4)], length_max=1000); lost = []",
     "q.push(2, 1, 1000, tick(), lost); q.pop(tick(), lost)"),
    ("windowed_quantile", "WindowedQuantile", "it = WindowedQuantile()",
     "it.add(latency(), tick())"),
)  # fmt: skip
PEERS: tuple[tuple[str, str, str], ...] = (
    ("peer: datasketches", ("from datasketches import frequent_strings_sketch as sketch;"
     "it = sketch(11)"), "it.update(key())"),
    ("peer: ddsketch", "from ddsketch import DDSketch; it = DDSketch()", "it.add(latency())"),
)  # fmt: skip


def setups() -> dict[str, tuple[str, str]]:
    """Each case's set-up and call, by its name."""
    cases = {}
    for name, imported, made, call in CASES:
        module = name.partition(",")[0].partition(" ")[0]
        imports = f"from sluicegate.kernels.{module} import {imported}" if module[0] != "(" else ""
        cases[name] = (f"{imports}\n{made}", call)
    return cases | {name: (made, call) for name, made, call in PEERS}


def one_round() -> dict[str, float]:
    """Nanoseconds a call of every case, in this process."""
    found = {}
    streams: dict[str, object] = {}
    exec(STREAMS, streams)
    for name, (setup, call) in setups().items():
        timer = timeit.Timer(call, setup, globals=streams)
        calls = 100
        while (took_s := timer.timeit(calls)) < CALL_S:
            calls *= 4 if took_s < CALL_S / 4 else 2
        found[name] = took_s / calls * 1e9
    return found


def prefer_sources() -> None:
    """Import .py files even where a compiled module lies beside them."""
    loaders = (SourceFileLoader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES)
    sys.path_hooks.insert(0, FileFinder.path_hook(*loaders))
    sys.path_importer_cache.clear()


def child_round(build: str) -> dict[str, float]:
    """One round in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.kernels", "--round", build]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def recall_and_memory(skew: float) -> tuple[float, float]:
    """Recall@100 of `space_saving` on 10^6 draws over 10^5 keys, and its megabytes."""
    from sluicegate.kernels.space_saving import SpaceSaving

    draws = random.Random(7)
    ranks = range(100_000)
    odds = [(rank + 1) ** -skew for rank in ranks]
    stream = draws.choices(ranks, weights=odds, k=1_000_000)
    true = {f"key:{rank}" for rank, _ in Counter(stream).most_common(100)}
    tracemalloc.start()
    sketch = SpaceSaving(2_048)
    for rank in stream:
        sketch.update(f"key:{rank}")
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return len(true & {heavy.key for heavy in sketch.top(100)}) / 100, megabytes


def look_ups_ns(rules: int, in_use: int) -> float:
    """Nanoseconds a look-up among so many rules, of which so many are asked for."""
    from sluicegate.kernels.rule_index import RuleIndex

    draws = random.Random(3)
    names = [str(uuid.UUID(int=draws.getrandbits(128))) for _ in range(rules)]
    index = RuleIndex(((("domain", "api"), ("caller", name)), name) for name in names)
    asked = [(("domain", "api"), ("caller", name)) for name in draws.sample(names, in_use)]
    order = draws.choices(asked, k=50_000)
    call = "for path in order: find(path)"
    words = {"order": order, "find": index.find}
    return min(timeit.repeat(call, number=1, repeat=ROUNDS, globals=words)) / len(order) * 1e9


def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    rounds: dict[str, list[dict[str, float]]] = {"interpreted": [], "compiled": []}
    for _ in range(ROUNDS):
        for build, found in rounds.items():
            found.append(child_round(build))
    print(
        f"{'kernel':<30} {'interpreted':>12} {'compiled':>10}   ns a call, what it is fed included"
    )
    for name in setups():
        slow, fast = (statistics.median(one[name] for one in found) for found in rounds.values())
        print(f"{name:<30} {slow:>12,.0f} {fast:>10,.0f}")
    print()
    for kernel, peer, most in (
        ("space_saving", "peer: datasketches", 2.5),
        ("windowed_quantile", "peer: ddsketch", 1.0),
    ):
        times = statistics.median(one[kernel] / one[peer] for one in rounds["compiled"])
        bars.check(times <= most, f"{kernel}: at most {most} x {peer[6:]}: {times:.2f} x")
    for skew in (0.8, 0.99, 1.2):
        recall, megabytes = recall_and_memory(skew)
        bars.check(recall >= 0.98, f"space_saving, Zipf {skew}: recall@100 of 0.98: {recall:.2f}")
        bars.check(megabytes <= 4, f"space_saving, Zipf {skew}: at most 4 MB: {megabytes:.2f} MB")
    few, many = look_ups_ns(100, 100), look_ups_ns(1_000_000, 1_000)
    claim = "rule_index: of 1,000,000 rules, 1,000 in use, at most 3 x of 100"
    bars.check(many <= 3 * few, f"{claim}: {many / few:.2f} x")
    even = look_ups_ns(1_000_000, 50_000)
    print(f"  (50,000 of them in use: {even / few:.1f} x, which is the memory's, not the index's)")
    bars.exit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--round", choices=("interpreted", "compiled"), help="one round, as JSON")
    asked = parser.parse_args()
    if asked.round is None:
        main()
    else:
        if asked.round == "interpreted":
            prefer_sources()
        print(json.dumps(one_round()))
