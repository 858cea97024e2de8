"""The verb `sluicegate lab tune`: a sweep's points, its frontier, its knee, and a picture of it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sluicegate.command_line.text import table
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import add_run_arguments, parse_jobs, parse_seeds
from sluicegate.lab.progress import RunProgress, write_status
from sluicegate.lab.text import format_number
from sluicegate.lab.tune.defaults import SettingChange, parse_change, value_text

if TYPE_CHECKING:
    from sluicegate.lab.tune.sweep import Frontier, PointResult, SettingsSweep

EXAMPLES: Final = """\
examples:
  sluicegate lab tune queue                                    the sweep that chose a default
  sluicegate lab tune queue --out sweep --jobs auto            and a picture of it
  sluicegate lab tune overload --set queue.target_us=2000,5000,10000
  sluicegate lab tune step --set queue.standing_us=none,0,100000 \\
      --set queue.interval_us=20000,100000
  sluicegate lab tune overload --set queue.length_max=50,200,1000 --case 10x \\
      --against goodput,p99_ms
"""
VALUES_MAX: Final = 100


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("name", metavar="NAME", help="a named sweep, or a scenario or its file")
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="FIELD=A,B,C",
        action="append",
        default=[],
        help="values to try, each with each of the others; as queue.standing_us=none,0,100000",
    )
    parser.add_argument("--as", dest="candidate", metavar="NAME", help="in place of ours")
    parser.add_argument("--case", metavar="NAME", help="only this case of the scenario")
    parser.add_argument(
        "--against", metavar="X,Y", help="two figures of the scenario (default: the first it shows)"
    )
    add_run_arguments(parser, runs=3)
    parser.add_argument("--out", metavar="DIR", help="draw it, into this folder")


def run(arguments: Namespace) -> int:
    """Run the sweep."""
    from sluicegate.lab import plots_style  # noqa: PLC0415 - the scenarios come with these
    from sluicegate.lab.tune.sweep import frontier_of, run_sweep  # noqa: PLC0415

    if arguments.out is not None:
        plots_style.need()
    seeds = parse_seeds(arguments.seed, arguments.runs)
    jobs = parse_jobs(arguments.jobs)
    sweep = parse_sweep(arguments)
    progress = RunProgress(write_status, live=sys.stderr.isatty())
    results = list(run_sweep(sweep, seeds, progress, jobs=jobs))
    progress.end()
    frontier = frontier_of(sweep, results)
    write_sweep(sweep, results, frontier, seeds, sys.stdout.write)
    if arguments.out is not None:
        from sluicegate.lab.tune.plot import draw  # noqa: PLC0415 - it draws

        sys.stdout.write(f"picture: {draw(sweep, results, frontier, Path(arguments.out))}\n")
    return 0


def parse_sweep(arguments: Namespace) -> SettingsSweep:
    """The named sweep, or the one that the flags describe."""
    from sluicegate.lab import scenarios, sweeps  # noqa: PLC0415 - likewise
    from sluicegate.lab.tune.sweep import Axis, SettingsSweep, grid  # noqa: PLC0415

    if not arguments.sets:
        if arguments.name in sweeps.TABLE:
            return sweeps.TABLE[arguments.name]
        known = ", ".join(sweeps.TABLE)
        raise BadValue("NAME", arguments.name, f"give --set FIELD=A,B, or a sweep: {known}")
    scenario = scenarios.find(arguments.name)
    case = arguments.case or next(iter(scenario.rigs))
    figures = scenario.columns[:2]
    if arguments.against is not None:
        figures = tuple(name.strip() for name in arguments.against.split(","))
    if len(figures) != 2:
        raise BadValue("--against", arguments.against, "name two figures, with a comma between")
    return SettingsSweep(
        name=scenario.name,
        title=scenario.title,
        points=grid([_changes(text) for text in arguments.sets]),
        cases={arguments.name: (case,) if arguments.case else ()},
        x=Axis(arguments.name, case, figures[0]),
        y=Axis(arguments.name, case, figures[1]),
        candidate=arguments.candidate,
    )


def write_sweep(
    sweep: SettingsSweep,
    results: Sequence[PointResult],
    frontier: Frontier,
    seeds: range,
    write: Callable[[str], object],
) -> None:
    """Print a row for each point, and the knee."""
    names = list(dict.fromkeys(change.field for one in results for change in one.point))
    rows = []
    for at, one in enumerate(results):
        values = {change.field: value_text(change.value) for change in one.point}
        mark = "knee" if at == frontier.knee else "frontier" if at in frontier.points else ""
        cells = (values.get(name, "") for name in names)
        figures = (format_number(one.x), format_number(one.y))
        rows.append((*cells, *figures, mark, ", ".join(one.missed) or "-"))
    write(f"{sweep.title}; seeds {seeds[0]} to {seeds[-1]}, the worst of them\n")
    write(f"  {sweep.x.text()} against {sweep.y.text()}\n")
    for line in table((*names, sweep.x.figure, sweep.y.figure, "", "misses"), rows):
        write(f"{line}\n")
    if frontier.knee is None:
        write("no point has both figures: there is no knee\n")
        return
    knee = results[frontier.knee]
    text = ", ".join(change.text() for change in knee.point)
    write(f"knee: {text}{'' if not knee.missed else ' (every point misses a goal)'}\n")


def _changes(text: str) -> list[SettingChange]:
    name, equals, values = text.partition("=")
    given = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or not given:
        raise BadValue("--set", text, "give FIELD=A,B,C")
    if len(given) > VALUES_MAX:
        raise BadValue("--set", text, f"give at most {VALUES_MAX} values")
    return [parse_change(name.strip(), value) for value in given]
