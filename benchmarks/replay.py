"""How many captured requests a second are replayed against two rulebooks, on one core.

    python -m benchmarks.replay [--requests 300000] [--entities 10000]

The capture is made (see `shadow/made.py`): a few entities ask for most of it, each for five things;
a tenth of them ask as a mesh does. The books have a rule for each of the five, with two windows for
one, and the candidate halves the limits. A replay is all of it: taking in the asks, deciding each
request by both books, and counting what they did. It takes turns with its peer, the same two books
asked in full: `Checker.check` and `Mesh.should_rate_limit` for each request, as the doors ask them.

A second table tells what a request costs by what applies to it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import cast

from benchmarks.rounds import Bars, build_of, interleaved, print_results, ratio
from sluicegate import Limiter
from sluicegate.contracts.checks import CheckRequest, CheckResponse, MeshResponse
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.resources.service import Checker
from sluicegate.shadow import pair
from sluicegate.shadow.replay import replay
from sluicegate.shadow.replay_parts import CalmGate, DecisionLedger, VirtualClock
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.traffic import CapturedTraffic
from tests.shadow.synthetic import OPERATIONS, synthetic_traffic

A_SECOND = 200_000
MESH_SHARE = 1_000  # of 10,000 entities
WINDOWS = ((60, 1), (3_600, 30))  # of the busiest rule: seconds, and times the limit


def book(limit: int) -> dict[str, bytes]:
    """A rulebook of both formats."""
    rules = []
    for operation in OPERATIONS:
        windows = WINDOWS if operation.name == "playback" else WINDOWS[:1]
        for seconds, times in windows:
            rules.append(
                {
                    "rule_id": f"{operation.name}-{seconds}",
                    "resource_path": operation.path.format("{id}"),
                    "limit": limit * times,
                    "window_seconds": seconds,
                }
            )
    path = {"key": "path", "rate_limit": {"unit": "minute", "requests_per_unit": limit}}
    mesh = {"domain": "made", "descriptors": [{"key": "tenant", "descriptors": [path]}]}
    return {
        "own.yaml": json.dumps({"version": 1, "rules": rules}).encode(),
        "mesh.yaml": json.dumps(mesh).encode(),
    }


def replaying(
    captured: CapturedTraffic, current: ReplayRules, candidate: ReplayRules
) -> Callable[[], int]:
    """Replay it, from the asks to the counts."""

    def run() -> int:
        return replay(captured, current, candidate).pair.replayed

    return run


class InFull:
    """One book, asked as the doors ask it."""

    def __init__(self, rules: ReplayRules, clock: VirtualClock) -> None:
        limiter, gate, ledger = (
            Limiter(rules=rules.book.rules, clock=clock),
            CalmGate(),
            DecisionLedger(),
        )
        self.checker = Checker(limiter, gate, ledger, book=rules.book.resources)
        self.mesh = Mesh(limiter, gate, ledger, book=rules.book.mesh)


def asking(
    captured: CapturedTraffic, current: ReplayRules, candidate: ReplayRules
) -> Callable[[], int]:
    """Ask both books in full, and count how often they differ."""

    def run() -> int:
        clock, differ = VirtualClock(), 0
        sides = [InFull(rules, clock) for rules in (current, candidate)]
        for at_us, which in zip(captured.at_us, captured.which, strict=True):
            clock.at_us = at_us
            ask, refused = captured.queries[which], []
            for side in sides:
                if isinstance(ask, CheckRequest):
                    made = side.checker.check(ask, at_us)
                    refused.append(not cast("CheckResponse", made).decision.allowed)
                else:
                    answered = side.mesh.should_rate_limit(ask, at_us)
                    refused.append(cast("MeshResponse", answered).over)
            differ += refused[0] != refused[1]
        return len(captured)

    return run


def only(captured: CapturedTraffic, wanted: Callable[[int], bool]) -> CapturedTraffic:
    """The requests of some asks."""
    made, places = CapturedTraffic(), dict[int, int]()
    for at, which in enumerate(captured.which):
        if wanted(which):
            if which not in places:
                places[which] = len(made.queries)
                made.queries.append(captured.queries[which])
                made.entities.append(captured.entities[which])
            made.at_us.append(captured.at_us[at])
            made.which.append(places[which])
            made.outcomes.append(captured.outcomes[at])
    return made


def kinds_of(captured: CapturedTraffic) -> dict[str, CapturedTraffic]:
    """The capture in parts, by what applies to a request."""
    busiest, asks = OPERATIONS[0].path, captured.queries

    def is_native(which: int) -> bool:
        return isinstance(asks[which], CheckRequest)

    def has_two(which: int) -> bool:
        ask = asks[which]
        return isinstance(ask, CheckRequest) and ask.resource_path == busiest

    return {
        "one rule": only(captured, lambda which: is_native(which) and not has_two(which)),
        "two windows": only(captured, has_two),
        "one descriptor": only(captured, lambda which: not is_native(which)),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--entities", type=int, default=10_000)
    options = parser.parse_args()
    captured = synthetic_traffic(options.requests, entities=options.entities, mesh=MESH_SHARE)
    current, candidate = ReplayRules(book(40)), ReplayRules(book(20))
    print(
        f"{len(captured):,} requests, {len(captured.queries):,} different asks, two books, "
        f"{build_of(pair.__file__)}"
    )
    bars = Bars()
    both = {
        "replay": replaying(captured, current, candidate),
        "asked in full": asking(captured, current, candidate),
    }
    results = interleaved(both)
    print_results("A request, decided by both books", results, "replay")
    a_second = 1e9 / results["replay"].median_ns
    times = ratio(results, "asked in full", "replay")
    claim = f"at least {A_SECOND:,} requests a second on one core: {a_second:,.0f}"
    bars.check(a_second >= A_SECOND, claim)
    bars.check(times >= 1, f"a replay is no slower than asking in full: {times:.2f} x as fast")
    parts = kinds_of(captured)
    results = interleaved(
        {name: replaying(part, current, candidate) for name, part in parts.items()}
    )
    print_results("A request, by what applies to it", results, "one rule")
    bars.exit()


if __name__ == "__main__":
    main()
