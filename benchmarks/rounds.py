"""Rounds: how every benchmark measures. Candidates take turns, and medians are compared.

A machine that is busy for a second is busy for all of them; what is left is divided out. Times are
of the calling thread's CPU, so a peer's helper threads are not counted against it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

ROUNDS = 5


class Result(NamedTuple):
    """One candidate's rounds, in nanoseconds a call."""

    name: str
    ns: tuple[float, ...]

    @property
    def median_ns(self) -> float:
        """The middle round."""
        return statistics.median(self.ns)


def interleaved(
    candidates: Mapping[str, Callable[[], int]], *, rounds: int = ROUNDS
) -> dict[str, Result]:
    """Run every candidate once a round; each runs its calls and returns how many it made."""
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()  # warm
    names = list(candidates)
    for turn in range(rounds):
        # Start each round somewhere else, so that no one always follows the same neighbour.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started_ns = time.thread_time_ns()
            calls = candidates[name]()
            seen[name].append((time.thread_time_ns() - started_ns) / calls)
    return {name: Result(name, tuple(ns)) for name, ns in seen.items()}


def ratio(results: Mapping[str, Result], slower: str, faster: str) -> float:
    """How many times faster `faster` is, by the median of the rounds' own ratios."""
    pairs = zip(results[slower].ns, results[faster].ns, strict=True)
    return statistics.median(slow / fast for slow, fast in pairs)


def print_results(title: str, results: Mapping[str, Result], reference: str) -> None:
    """A table: median, range, and how many times the reference's time."""
    print(f"\n{title}")
    width = max(len(name) for name in results)
    for result in sorted(results.values(), key=lambda result: result.median_ns):
        times = ratio(results, result.name, reference)
        print(
            f"  {result.name:<{width}}  {result.median_ns:9.0f} ns"
            f"  ({min(result.ns):.0f} to {max(result.ns):.0f})  {times:6.2f} x {reference}"
        )


class Bars:
    """Bars met and missed; the benchmark's exit code."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def check(self, met: bool, claim: str) -> None:
        """Print one bar, and remember it if it is missed."""
        print(f"  {'met   ' if met else 'MISSED'}  {claim}")
        if not met:
            self.missed.append(claim)

    def exit(self) -> None:
        """End the program: 1 if a bar was missed."""
        sys.exit(1 if self.missed else 0)


def build_of(module_file: str) -> str:
    """What a module's file says about the build that is measured."""
    return "interpreted" if module_file.endswith(".py") else "compiled"


def calls_of(call: Callable[[], object], count: int) -> Callable[[], int]:
    """A candidate that makes one call over and over."""

    def run() -> int:
        for _ in range(count):
            call()
        return count

    return run


def calls_over(call: Callable[[str], object], keys: Sequence[str]) -> Callable[[], int]:
    """A candidate that makes a call for each key in turn."""

    def run() -> int:
        for key in keys:
            call(key)
        return len(keys)

    return run
