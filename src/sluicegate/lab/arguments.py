"""Arguments: the flags that verbs of `sluicegate lab` share, and how their values are read."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import (
    DURATION_US_MAX,
    Bimodal,
    Constant,
    Duration,
    Exponential,
    Lognormal,
    Pareto,
)

RUNS_MAX: Final = 100_000
JOBS_MAX: Final = 256
SEED_MAX: Final = (1 << 63) - 1
_UNITS_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
SERVICES: Final = "exponential, constant, lognormal:SIGMA, pareto:ALPHA, bimodal:SHARE/TIMES"


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
    return range(first, first + parse_whole("--seeds (or --runs)", runs, 1, RUNS_MAX))


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


def read_float(text: str) -> float:
    """A number as people write it: `1_0` and digits of other scripts are none."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def parse_number(flag: str, text: str, most: float = 1e6) -> float:
    """A number above 0."""
    try:
        value = read_float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise BadValue(flag, text, f"give a number above 0, up to {most:,.0f}")
    return value


def parse_us(flag: str, text: str) -> int:
    """A time with its unit, in microseconds: `30ms`, `0.5s`."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz").strip()
    unit_us = _UNITS_US.get(text[len(number) :].strip(), 0)
    try:
        us = round(read_float(number) * unit_us)
    except (ValueError, OverflowError):
        us = 0
    if not 1 <= us <= DURATION_US_MAX:
        raise BadValue(flag, text, "give a time above 0 with its unit, up to a day: 30ms, 0.5s")
    return us


def parse_share(flag: str, text: str) -> float:
    """A share above 0, as `20%` or `0.2`."""
    number = text.strip()
    try:
        share = read_float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise BadValue(flag, text, "give a share above 0: 20% or 0.2")
    return share


def parse_service(flag: str, text: str, mean_us: int) -> Duration:
    """How service times vary around their mean, by the name of the distribution."""
    name, mark, how = text.strip().partition(":")
    if mark and not how:
        raise BadValue(flag, text, f"give a number behind the colon ({SERVICES})")
    try:
        if name == "exponential" and not how:
            return Exponential(float(mean_us))
        if name == "constant" and not how:
            return Constant(mean_us)
        if name == "lognormal":
            return Lognormal(float(mean_us), read_float(how or "1"))
        if name == "pareto":
            return Pareto(float(mean_us), read_float(how or "1.5"))
        if name == "bimodal":
            return _bimodal(flag, how or "5%/10", mean_us)
    except ValueError as error:
        remedy = error.remedy if isinstance(error, BadValue) else "give a number behind the colon"
        raise BadValue(flag, text, f"{remedy} ({SERVICES})") from None
    raise BadValue(flag, text, f"give one of {SERVICES}")


def _bimodal(flag: str, how: str, mean_us: int) -> Duration:
    """A share of them takes so many times as long as the others."""
    share_text, mark, times_text = how.partition("/")
    share, times = parse_share(flag, share_text), read_float(times_text if mark else "10")
    if not 1 <= times <= 1e6:
        raise BadValue(flag, times_text, "say how many times as long: 1 to 1,000,000")
    short_us = mean_us / (1 - share + share * times)
    return Bimodal(Constant(round(short_us)), Constant(round(short_us * times)), share)
