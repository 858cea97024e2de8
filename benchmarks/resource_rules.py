"""A million native rules: how long they take to load, what they weigh, what they cost a check.

    python -m benchmarks.resource_rules [--rules 1000000]

The rules stand in files of JSON (which is YAML) of 20,000 each, half of them exact paths, a quarter
templates and a quarter prefixes. They are loaded in a process of their own, which notes its
resident memory before and after, loads once more with one file changed, and once in a thread while
an event loop counts how long it was kept waiting. Then asks for random rules take turns with asks
of a book of 100; each makes its path anew from bytes, as a door does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from benchmarks.null_gate import NullGate
from benchmarks.rounds import Bars, build_of, interleaved, print_results, ratio
from sluicegate import Limiter
from sluicegate.contracts.checks import CheckRequest, CheckResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.kernels.path_index import plain_path
from sluicegate.rules.resources import service
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.system import now_us

RULES = 1_000_000
RULES_A_FILE = 20_000
ASKS = 50_000
TIMES_MAX = 3.0
FORMS = (
    ("/tenants/{n}/playback", "/tenants/{n}/playback"),
    ("/catalog/{n}/rows", "/catalog/{n}/rows"),
    ("/users/{n}/{{id}}", "/users/{n}/77"),
    ("/files/{n}/*", "/files/{n}/a/b"),
)


def text_of(first: int, count: int, limit: int = 1_000_000) -> str:
    """A file of so many rules."""
    rules = [
        {
            "rule_id": f"rule-{n}",
            "resource_path": FORMS[n % len(FORMS)][0].format(n=n),
            "limit": limit,
            "window_seconds": 60,
            "burst_capacity": 1.2,
        }
        for n in range(first, first + count)
    ]
    return json.dumps({"version": 1, "rules": rules})


def write(folder: Path, rules: int) -> None:
    """Write so many rules into a folder."""
    for first in range(0, rules, RULES_A_FILE):
        text = text_of(first, min(RULES_A_FILE, rules - first))
        (folder / f"{first:08}.yaml").write_text(text)


def asks_of(rules: int, seed: int = 4) -> list[bytes]:
    """Paths that fall under random rules."""
    draws = random.Random(seed)
    numbers = [draws.randrange(rules) for _ in range(ASKS)]
    return [FORMS[n % len(FORMS)][1].format(n=n).encode() for n in numbers]


def finding(book: ServiceRuleSet, asks: list[bytes]) -> Callable[[], int]:
    """Look all of them up."""
    resources = book.resources

    def run() -> int:
        for path in asks:
            if not resources.find(plain_path(path.decode()), "", Criticality.DEGRADED):
                raise AssertionError(path)
        return len(asks)

    return run


def checking(book: ServiceRuleSet, asks: list[bytes]) -> Callable[[], int]:
    """Check all of them, counts in memory."""
    limiter = Limiter()
    limiter.replace_rules(book.rules)
    gate = NullGate()
    checker = Checker(limiter, gate, gate, book=book.resources)

    def run() -> int:
        for path in asks:
            answer = checker.check(CheckRequest("ann", path.decode()), now_us())
            if not cast("CheckResponse", answer).decision.rule_id:
                raise AssertionError(path)
        return len(asks)

    return run


def resident() -> int:
    """Bytes of memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def stalls(work: Callable[[], object]) -> tuple[float, float]:
    """The longest wait of a loop that wants to run each millisecond, beside work in a thread."""
    longest_s = 0.0
    began = time.perf_counter()
    load = asyncio.ensure_future(asyncio.to_thread(work))
    while not load.done():
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        longest_s = max(longest_s, time.perf_counter() - asked - 0.001)
    await load
    return longest_s, time.perf_counter() - began


def measure(folder: Path, small: Path, rules: int) -> None:
    """In a process of its own."""
    few = ServiceRuleSet.load([small])
    gc.collect()
    before = resident()
    began = time.perf_counter()
    many = ServiceRuleSet.load([folder])
    took_s = time.perf_counter() - began
    gc.collect()
    print(f"\n{rules:,} rules, {build_of(service.__file__)}")
    print(f"  load              {took_s:9.1f} s, {took_s / rules * 1e6:.1f} us a rule")
    print(f"  weight            {(resident() - before) / rules:9.0f} bytes a rule, texts included")
    (folder / "00000000.yaml").write_text(text_of(0, min(RULES_A_FILE, rules), 999_999))
    began = time.perf_counter()
    many = ServiceRuleSet.load([folder], before=many)
    print(f"  load, one changed {time.perf_counter() - began:9.1f} s")
    (folder / "00000000.yaml").write_text(text_of(0, min(RULES_A_FILE, rules)))
    longest_s, took_s = asyncio.run(stalls(lambda: ServiceRuleSet.load([folder], before=many)))
    calm_s, _ = asyncio.run(stalls(lambda: time.sleep(took_s)))
    beside = f"{longest_s * 1e3:.0f} ms; beside nothing {calm_s * 1e3:.0f} ms"
    print(f"  in a thread       {took_s:9.1f} s, a loop beside it waits at most {beside}")
    big, little = asks_of(rules), asks_of(100)
    bars = Bars()
    for what, made in (("look-up", finding), ("check", checking)):
        results = interleaved({"100 rules": made(few, little), f"{rules:,}": made(many, big)})
        print_results(f"A {what} of random rules", results, "100 rules")
        if what == "check":
            times = ratio(results, f"{rules:,}", "100 rules")
            claim = (
                f"a check by {rules:,} rules costs at most {TIMES_MAX} x one by 100: {times:.2f} x"
            )
            bars.check(times <= TIMES_MAX, claim)
    bars.exit()


def main() -> None:
    """Write the rules, and measure in another process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=RULES)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        folder = Path(options.folder)
        measure(folder / "many", folder / "few", options.rules)
        return
    with tempfile.TemporaryDirectory() as name:
        for part, rules in (("many", options.rules), ("few", 100)):
            (Path(name) / part).mkdir()
            write(Path(name) / part, rules)
        command = [sys.executable, "-m", "benchmarks.resource_rules", "--folder", name]
        told = subprocess.run(
            [*command, "--rules", str(options.rules)], check=False, env=os.environ
        )
    sys.exit(told.returncode)


if __name__ == "__main__":
    main()
