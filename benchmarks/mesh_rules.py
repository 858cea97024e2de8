"""Mesh rules: a look-up and a whole decision, with 100 rules and with 1,000,000.

The bar is that a million rules cost at most three times what a hundred do. What grows with their
number is not the steps but the fetching: a table that no cache holds is read from memory. So it
depends on what is asked for, and both are measured: 1,000 different descriptors, as a busy minute
has, and all rules alike, which no traffic does and which is the worst there is. Beside them stand
two bare dicts, one in the other, asked for the same: the least that any index of Python can cost.

    python -m benchmarks.mesh_rules [--rules 1000000]
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.null_gate import NullGate
from benchmarks.rounds import build_of, interleaved, ratio
from sluicegate import Limiter
from sluicegate.contracts.checks import Descriptor, MeshRequest
from sluicegate.rules.mesh import service
from sluicegate.rules.mesh.parser import parse_domain
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.problems import Problems
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.testing import HandClock

PATHS = 10
CALLS = 100_000
NOW_US = 1_700_000_000_000_000
FEW = 100
FILE_RULES = 10_000
BAR = 3.0

Entries = tuple[tuple[str, str], ...]


def tree(first: int, rules: int) -> dict[str, object]:
    """A file of tenants with ten paths each; of limits there are a few, as in any real one."""
    plans = [{"unit": "minute", "requests_per_unit": 100_000 * n} for n in range(1, 5)]
    return {
        "domain": "shop",
        "descriptors": [
            {
                "key": "tenant",
                "value": f"tenant-{tenant}",
                "descriptors": [
                    {"key": "path", "value": f"/path/{path}", "rate_limit": plans[tenant % 4]}
                    for path in range(PATHS)
                ],
            }
            for tenant in range(first // PATHS, (first + rules) // PATHS)
        ],
    }


class Loaded:
    """A book of so many rules, a mesh around it, and what loading took."""

    def __init__(self, rules: int, semantics: Semantics) -> None:
        gc.collect()
        before, shared_limits, domains, spent_s = resident_bytes(), SharedLimits(), [], 0.0
        for first in range(0, rules, FILE_RULES):
            plain = tree(first, min(FILE_RULES, rules - first))
            began = time.process_time()
            problems = Problems("bench", {})
            domain = parse_domain(plain, problems, shared_limits, semantics)
            problems.raise_if_any()
            assert domain is not None
            domains.append(domain)
            spent_s += time.process_time() - began
        began = time.process_time()
        self.book = MeshRuleSet(domains, merge_domains=True)
        self.load_s = spent_s + time.process_time() - began
        del domain, domains, plain
        gc.collect()
        self.bytes_a_rule = (resident_bytes() - before) / rules
        self.rules = rules
        limiter = Limiter(clock=HandClock(NOW_US))
        limiter.replace_rules(shared_limits.rules)
        calm = NullGate()
        settings = MeshSettings(semantics=semantics)
        self.mesh = Mesh(limiter, calm, calm, settings=settings, book=self.book)
        self.bare: dict[str, dict[str, int]] = {
            f"tenant-{tenant}": {f"/path/{path}": path for path in range(PATHS)}
            for tenant in range(rules // PATHS)
        }


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4_096


def drawn(rules: int, different: int) -> list[Entries]:
    """So many descriptors, of so many different rules."""
    chance = random.Random(7)
    numbers = chance.sample(range(rules), min(different, rules))
    asked = [chance.choice(numbers) for _ in range(CALLS)]
    # Texts of their own for each, as bytes from a socket become: none is the text of a rule.
    return [
        (("tenant", f"tenant-{number // PATHS}"), ("path", f"/path/{number % PATHS}"))
        for number in asked
    ]


def looking(book: MeshRuleSet, asked: Sequence[Entries]) -> Callable[[], int]:
    """Look each of them up."""

    def run() -> int:
        find = book.find
        for entries in asked:
            find("shop", entries)
        return len(asked)

    return run


def bare(tables: dict[str, dict[str, int]], asked: Sequence[Entries]) -> Callable[[], int]:
    """The same of two bare dicts."""

    def run() -> int:
        for (_, tenant), (_, path) in asked:
            tables[tenant][path]
        return len(asked)

    return run


def deciding(mesh: Mesh, asked: Sequence[Entries]) -> Callable[[], int]:
    """Decide on each of them."""
    asks = [MeshRequest("shop", [Descriptor(entries)]) for entries in asked]

    def run() -> int:
        decide = mesh.should_rate_limit
        for ask in asks:
            decide(ask, NOW_US)
        return len(asks)

    return run


def main() -> None:
    """Measure, and say which meets the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--semantics", choices=["envoy", "sluicegate"], default="sluicegate")
    options = parser.parse_args()
    semantics = Semantics(options.semantics)
    many = Loaded(options.rules, semantics)
    few = Loaded(FEW, semantics)
    gc.collect()
    gc.freeze()
    print(f"{build_of(str(service.__file__))}, semantics {semantics.value}")
    print(
        f"{many.rules:,} rules loaded from plain values in {many.load_s:.1f} s of CPU, "
        f"{many.bytes_a_rule:.0f} bytes a rule"
    )
    runs: dict[str, Callable[[], int]] = {}
    for name, one in (("few", few), ("many", many)):
        for different in (1_000, one.rules):
            asked = drawn(one.rules, different)
            kind = "all" if different == one.rules else "1,000"
            if kind == "1,000" and one is few:
                continue
            runs[f"look-up, {name}, {kind}"] = looking(one.book, asked)
            runs[f"two dicts, {name}, {kind}"] = bare(one.bare, asked)
            runs[f"decision, {name}, {kind}"] = deciding(one.mesh, asked)
    results = interleaved(runs, rounds=options.rounds)
    print(f"{'':12}{FEW:>10,} rules   {many.rules:>10,}: 1,000 asked    all alike")
    for what in ("look-up", "two dicts", "decision"):
        base = f"{what}, few, all"
        line = f"{what:<12}{results[base].median_ns:10.0f} ns"
        for kind in ("1,000", "all"):
            name = f"{what}, many, {kind}"
            times = ratio(results, name, base)
            met = "met" if times <= BAR else "MISSED"
            line += f"   {results[name].median_ns:7.0f} ns = {times:4.2f} x {met}"
        print(line)


if __name__ == "__main__":
    main()
