"""The flags of `sluicegate lab run` for a station of one's own, and what it prints.

The sentence comes first, then what was played, the table, and whether the file's goals are met.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Final

from sluicegate.command_line.text import clip, clip_words, count, counted, percent, table
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import SERVICES, parse_jobs, parse_seeds
from sluicegate.lab.goals import judge_goals
from sluicegate.lab.own_numbers.numbers import NAMES, SHAPES, WARM_US, OwnNumbers, read_numbers
from sluicegate.lab.progress import ProgressBar, write_status
from sluicegate.lab.text import format_number, join_names
from sluicegate.lab.what_if.text import (
    FigureRow,
    each_class,
    milliseconds,
    summary_sentence,
    table_rows,
)

SCENARIO: Final = "overload"  # the one whose numbers may be one's own
MET: Final = 0
MISSED: Final = 1
SHIPS: Final = {
    "dispatcher": "dispatcher is the chain of sluicegate kv with its default settings",
    "protect": "protect is that of sluicegate.resilience, with as many places as workers",
}
_CASE: Final = "own"
_FIGURES: Final = (
    FigureRow("offered", "offered", count),
    FigureRow("answered in time", "answered_in_time", count),
    FigureRow("share in time", "in_time_share", percent),
    FigureRow("refused", "refused", count),
    FigureRow("answered too late", "late", count),
    FigureRow("wait p50", "wait_p50_us", milliseconds),
    FigureRow("wait p99", "wait_p99_us", milliseconds),
    FigureRow("refusal told p99", "refused_p99_us", milliseconds),
)
_OVERALL: Final = (
    FigureRow("goodput, of what can be done", "goodput", percent),
    FigureRow("  of the worst seed", "goodput_least", percent),
    *_FIGURES,
    FigureRow("queue peak", "queue_peak", count),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group(
        f"a station of your own: `run {SCENARIO}` with any of these, or `run FILE.toml`"
    )
    add = group.add_argument
    add("--workers", metavar="N", help="how many serve, one unit at a time each (default 32)")
    add("--work", metavar="TIME", help="what a unit takes one, on average: 30ms (default 10ms)")
    add("--service", metavar="NAME", help=f"how that varies: {SERVICES} (default exponential)")
    add("--arrivals", metavar="SHAPE", help=f"{SHAPES}; behind it @1.5x or @400 (default 2x)")
    add("--mix", metavar="SHARES", help="classes: critical=20%%,bulk=80%% (default all DEGRADED)")
    add("--deadline", metavar="TIME", help="how long callers wait: 500ms, or 500ms,bulk=5s")
    add("--seconds", metavar="N", help="how many are counted, after a warm-up of 2 (default 8)")
    add("--with", metavar="A,B", help="compare with these baselines, or none (default fifo)")


def wanted(arguments: Namespace) -> bool:
    """Whether the command is about a station of one's own."""
    return bool(_flags(arguments)) or arguments.name.endswith(".toml")


def run(arguments: Namespace) -> int:
    """Play it, and print the report."""
    # The policies come with it.
    from sluicegate.lab.own_numbers.play import (  # noqa: PLC0415
        book_of,
        check_candidates,
        play_all,
    )

    path = arguments.name if arguments.name.endswith(".toml") else None
    given = _flags(arguments)
    if path is None and arguments.name != SCENARIO:
        flag = f"--{next(iter(given))}"
        remedy = f"leave out {flag}, or name {SCENARIO} or a .toml file: only they take numbers"
        raise BadValue("NAME", arguments.name, remedy)
    if arguments.case is not None:
        raise BadValue("--case", arguments.case, "leave it out: your own numbers are one case")
    if arguments.candidate is not None:
        given["as"] = arguments.candidate
    numbers = read_numbers(given, path)
    names = list(dict.fromkeys([numbers.ours, *numbers.others]))
    check_candidates(numbers)
    seeds = parse_seeds(arguments.seed, arguments.runs)
    bar = ProgressBar(write_status, live=sys.stderr.isatty())
    bar.show(0, len(names) * len(seeds), "runs")
    runs = []
    try:
        for one in play_all(numbers, seeds, parse_jobs(arguments.jobs)):
            runs.append(one)
            bar.show(len(runs), len(names) * len(seeds), "runs")
    finally:
        bar.clear()
    books = [book_of(name, [one for one in runs if one.candidate == name]) for name in names]
    ours = {one.seed: one.figures() for one in runs if one.candidate == numbers.ours}
    goals = judge_goals(numbers.goals, {_CASE: numbers}, {_CASE: ours})
    report = {
        "sentence": summary_sentence(books),
        "played": _played(numbers, seeds),
        "candidates": books,
        "goals": [one.as_json(numbers) for one in goals],
    }
    if arguments.json:
        sys.stdout.write(f"{json.dumps(report, indent=1)}\n")
    else:
        for line in _lines(report):
            sys.stdout.write(f"{line}\n")
    return MET if all(one.met for one in goals) else MISSED


def _flags(arguments: Namespace) -> dict[str, str]:
    return {
        name: value
        for name in NAMES
        if name != "as" and (value := getattr(arguments, name, None)) is not None
    }


def _played(numbers: OwnNumbers, seeds: Sequence[int]) -> list[str]:
    """What was played, in two or three lines."""
    written = numbers.words
    classes = join_names([f"{100 * share:.4g}% {of.name}" for of, share in numbers.mix.items()])
    waits = join_names([f"{of.name} {numbers.patience_us(of) / 1_000:g} ms" for of in numbers.mix])
    mean_ms = numbers.service.mean_us / 1_000
    serves = (
        f"{counted(numbers.workers, 'worker')} of {format_number(mean_ms)} ms "
        f"({clip(written.get('service', 'exponential'))}) can do "
        f"{format_number(numbers.capacity_per_s)}/s; arrivals "
        f"{clip(written.get('arrivals', '2x'))}, of them {classes}; callers wait: {waits}"
    )
    runs = (
        f"seeds {seeds[0]} to {seeds[-1]}, {numbers.seconds} s each after a warm-up of "
        f"{WARM_US // 1_000_000} s; a refusal takes a worker 1% of a unit"
    )
    lines = [serves, runs]
    if numbers.ours in SHIPS:
        lines.append(SHIPS[numbers.ours])
    return lines


def _lines(report: dict[str, Any]) -> Iterator[str]:
    books = report["candidates"]
    yield clip_words(report["sentence"])
    yield ""
    yield from report["played"]
    yield ""
    rows = table_rows(books, _OVERALL)
    for name, figures in each_class(books):
        rows.append((name, *[""] * len(books)))
        rows += [(f"  {words}", *cells) for words, *cells in table_rows(figures, _FIGURES)]
    for line in table(("", *[book["name"] for book in books]), rows, left=1):
        yield line[2:]
    if report["goals"]:
        yield ""
    for one in report["goals"]:
        mark = "met   " if one["met"] else "MISSED"
        figure = inf if one["worst"] is None else one["worst"]
        worst = f"{format_number(figure)} (seed {one['seed']})"
        yield f"{mark}  {one['goal']}  {worst}  {one['held']} of {one['runs']}"
