"""The verb `sluicegate lab replay`: a trace against policies, their figures side by side."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from sluicegate.command_line.text import table
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import SEED_MAX, parse_number, parse_whole
from sluicegate.lab.text import format_number
from sluicegate.lab.traces import BAD_ROWS_MAX, Columns, Trace, open_trace

if TYPE_CHECKING:
    from sluicegate.lab.replay.station import Station, Survey

EXAMPLES: Final = """\
examples:
  sluicegate lab replay requests.csv                    columns time,key,size,cost, as far as there
  sluicegate lab replay log.csv.gz --time ts --unit ms --key path --cost none
  sluicegate lab replay azure_llm.csv --time TIMESTAMP --cost ContextTokens,GeneratedTokens
  sluicegate lab replay cluster.csv --time 0 --key 1 --size 3 --cost none --as queue
"""
NONE: Final = "none"
WORKERS_MAX: Final = 100_000
ROWS_DEFAULT: Final = 200_000
ROWS_MAX: Final = 100_000_000
_MOST: Final = 1e15


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("trace", metavar="TRACE", help="a file")
    for what, purpose in (("time", "of time"), ("key", "of keys"), ("size", "of sizes")):
        parser.add_argument(
            f"--{what}", metavar="COLUMN", help=f"the column {purpose}, or its number"
        )
    parser.add_argument("--cost", metavar="A,B", help="the columns whose sum is the cost")
    parser.add_argument("--unit", default="s", help="of time: s, ms, us or ns (default s)")
    parser.add_argument(
        "--bad-rows", metavar="N", default="0", help="how many bad rows to skip (default 0)"
    )
    parser.add_argument(
        "--rows", metavar="N", default=str(ROWS_DEFAULT), help="read at most this many"
    )
    parser.add_argument("--speed", metavar="X", default="1", help="replay it X times as fast")
    parser.add_argument(
        "--capacity",
        metavar="C",
        help="cost a second that can be served (default: the mean load is 0.8)",
    )
    parser.add_argument("--workers", metavar="N", default="8", help="workers (default 8)")
    parser.add_argument("--timeout", metavar="MS", help="how long callers wait")
    parser.add_argument("--as", dest="candidate", metavar="NAME", help="in place of our chain")
    parser.add_argument("--seed", metavar="N", default="0", help="the seed (default 0)")


def run(arguments: Namespace) -> int:
    """Replay the trace."""
    from sluicegate.lab.replay import station  # noqa: PLC0415 - the policies come with it

    seed = parse_whole("--seed", arguments.seed, 0, SEED_MAX)
    rows_max = parse_whole("--rows", arguments.rows, 1, ROWS_MAX)
    trace = open_trace(arguments.trace, columns_of(arguments))
    candidate = arguments.candidate or station.OURS
    if candidate not in station.CANDIDATES:
        raise BadValue("--as", candidate, f"give one of {', '.join(station.CANDIDATES)}")
    speed = parse_number("--speed", arguments.speed, _MOST)
    survey = station.survey_trace(trace, speed=speed, rows_max=rows_max)
    capacity_per_s = timeout_us = None
    if arguments.capacity:
        capacity_per_s = parse_number("--capacity", arguments.capacity, _MOST)
    if arguments.timeout is not None:
        timeout_us = max(round(parse_number("--timeout", arguments.timeout, _MOST) * 1_000), 1)
    place = station.design_station(
        survey,
        workers=parse_whole("--workers", arguments.workers, 1, WORKERS_MAX),
        capacity=capacity_per_s,
        timeout_us=timeout_us,
        speed=speed,
    )
    _write_survey(trace, survey, place)
    figures = {}
    for name in dict.fromkeys((candidate, station.BASELINE)):
        make = station.CANDIDATES[name]
        ledger = station.replay_trace(trace, place, survey, make, seed)
        figures[name] = station.figures_of(place, survey, ledger)
    _write_table(figures)
    return 0


def columns_of(arguments: Namespace) -> Columns | None:
    """The columns that flags name; None if there are no such flags."""
    named = (arguments.time, arguments.key, arguments.size, arguments.cost)
    bad = parse_whole("--bad-rows", arguments.bad_rows, 0, BAD_ROWS_MAX)
    if named == (None, None, None, None) and arguments.unit == "s" and not bad:
        return None
    cost = "cost" if arguments.cost is None else arguments.cost
    return Columns(
        time=arguments.time or "time",
        key=_column(arguments.key, "key"),
        size=_column(arguments.size, "size"),
        cost=tuple(name.strip() for name in cost.split(",") if name.strip() not in {"", NONE}),
        unit=arguments.unit,
        bad_rows_max=bad,
    )


def _write_survey(trace: Trace, survey: Survey, place: Station) -> None:
    """Print what comes, and what there is to serve it."""
    cut = f", the first {survey.rows:,} rows of more" if survey.cut else ""
    mean, peak = survey.cost_per_s / place.capacity, survey.peak_per_s / place.capacity
    sys.stdout.write(
        f"{trace.name}: {survey.rows:,} rows in {format_number(survey.span_us / 1e6)} s{cut}\n"
        f"  {place.workers} workers, {format_number(place.capacity)} of cost a second; load "
        f"{format_number(mean)} on average, {format_number(peak)} in the worst second; "
        f"callers wait {format_number(place.timeout_us / 1_000)} ms\n"
    )


def _write_table(figures: dict[str, dict[str, float]]) -> None:
    """Print a row for each candidate, a column for each figure that any of them has."""
    names = list(dict.fromkeys(name for row in figures.values() for name in row))
    rows = [
        (who, *(format_number(row[name]) if name in row else "" for name in names))
        for who, row in figures.items()
    ]
    for line in table(("", *names), rows):
        sys.stdout.write(f"{line}\n")


def _column(name: str | None, default: str) -> str | None:
    if name is None:
        return default
    return None if name == NONE else name
