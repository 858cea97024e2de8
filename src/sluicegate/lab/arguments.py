"""Arguments: the flags that verbs of `sluicegate lab` share, and how their values are read."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Final

from sluicegate.contracts.errors import BadValue

RUNS_MAX: Final = 100_000
JOBS_MAX: Final = 256
SEED_MAX: Final = (1 << 63) - 1


def add_run_arguments(parser: ArgumentParser, *, runs: int = 5, jobs: str = "1") -> None:
    """Add `--seed`, `--runs` and `--jobs`."""
    parser.add_argument("--seed", metavar="N", default="0", help="the first seed (default 0)")
    parser.add_argument(
        "--runs",
        "--seeds",
        metavar="K",
        default=str(runs),
        help=f"how many seeds; the worst counts (default {runs})",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        default=jobs,
        help=f"how many processes, or auto: one a core (default {jobs})",
    )


def parse_seeds(seed: str, runs: str) -> range:
    """The seeds to run: `runs` of them from `seed` on."""
    first = parse_whole("--seed", seed, 0, SEED_MAX)
    return range(first, first + parse_whole("--runs", runs, 1, RUNS_MAX))


def parse_jobs(jobs: str) -> int:
    """How many processes; `auto` is as many as there are cores."""
    if jobs == "auto":
        return min(os.cpu_count() or 1, JOBS_MAX)
    return parse_whole("--jobs", jobs, 1, JOBS_MAX, ", or auto")


def parse_whole(flag: str, text: str, least: int, most: int, alternative: str = "") -> int:
    """A whole number within bounds."""
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        raise BadValue(flag, text, f"give a whole number from {least:,} to {most:,}{alternative}")
    return int(text)


def parse_number(flag: str, text: str, most: float = 1e6) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise BadValue(flag, text, f"give a number above 0, up to {most:,.0f}")
    return value
