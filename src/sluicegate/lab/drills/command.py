"""The verb `sluicegate lab drill`: a claim about the dispatcher, tried on real processes.

A drill starts its own dispatchers, drives them over real sockets, and ends them, also on Ctrl-C. It
exits with 0 when every bar came as it should, and with 1 when one did not or the run is void.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import SEED_MAX, parse_number, parse_whole
from sluicegate.lab.charts import panels_file
from sluicegate.lab.drills import report
from sluicegate.lab.drills.drill import LAYERS, NO_CONTROLS, POLICIES, Drill, DrillSetting

EXAMPLES: Final = """\
examples:
  sluicegate lab drill list                        what there is, and how long it takes
  sluicegate lab drill overload                    its figures, its bars, and overload.svg
  sluicegate lab drill neighbour --seconds 20 --out drills
  sluicegate lab drill neighbour --policy generation-one  the same without the layers: it must fail
  sluicegate lab drill shard --json                for programs

A drill wants the machine for itself. Where its generator could not keep up the run is void.
"""
LIST: Final = "list"
ALL: Final = "all"
SECONDS_MAX: Final = 3_600.0


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    add = parser.add_argument
    add("name", metavar="NAME", help=f"a drill's name, {ALL} for each in turn, or {LIST}")
    add("--seconds", metavar="N", help="how long to send each of its loads")
    add("--out", metavar="DIR", default=".", help="the folder for its picture (default: here)")
    add("--json", action="store_true", help="print JSON")
    add(
        "--policy",
        choices=POLICIES,
        default=LAYERS,
        help="with which layers; without them a drill shows what they are for (default layers)",
    )
    add("--seed", metavar="N", default="0", help="the seed of the load (default 0)")


def drills_by_name() -> dict[str, Drill]:
    """Return all drills; what they need is imported here."""
    from sluicegate.lab.drills import (  # noqa: PLC0415
        byte_hog,
        game,
        hot_key,
        neighbour,
        overload,
        recovery,
        shard,
        shares,
    )

    modules = (
        hot_key,
        overload,
        neighbour,
        shard,
        recovery,
        shares,
        byte_hog,
        game,
    )
    return {module.DRILL.name: module.DRILL for module in modules}


def run(arguments: Namespace) -> int:
    """Play the drills, and print what they found."""
    table = drills_by_name()
    if arguments.name == LIST:
        _list(table)
        return 0
    if arguments.name != ALL and arguments.name not in table:
        raise BadValue("NAME", arguments.name, f"give one of {', '.join(table)}, {ALL} or {LIST}")
    drills = list(table.values()) if arguments.name == ALL else [table[arguments.name]]
    settings = [_setting(drill, arguments) for drill in drills]
    folder = Path(arguments.out)
    if not folder.is_dir():
        _make_folder(folder)
    passed = [
        _one(drill, setting, folder, as_json=arguments.json)
        for drill, setting in zip(drills, settings, strict=True)
    ]
    return 0 if all(passed) else 1


def _one(drill: Drill, setting: DrillSetting, folder: Path, *, as_json: bool) -> bool:
    outcome = drill.play(setting)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(drill, setting, outcome), indent=2) + "\n")
    else:
        for line in report.text_lines(drill, setting, outcome):
            sys.stdout.write(f"{line}\n")
    picture = panels_file(f"{drill.name}: {drill.title}", outcome.panels)
    if picture:
        file = folder / f"{drill.name}.svg"
        file.write_text(picture, encoding="utf-8")
        _print_progress(f"the picture is {file}")
    sys.stdout.flush()
    return outcome.passed


def _list(table: dict[str, Drill]) -> None:
    width = max(len(name) for name in table)
    for drill in table.values():
        sys.stdout.write(f"{drill.name:<{width}}  {drill.title}\n")
        sys.stdout.write(f"{'':<{width}}  {drill.why}\n")
        sys.stdout.write(f"{'':<{width}}  loads of {drill.seconds:g} s")
        others = [name for name in drill.policies if name not in NO_CONTROLS]
        if others:
            sys.stdout.write(f"; --policy {' or '.join(others)} must fail")
        sys.stdout.write("\n")


def _setting(drill: Drill, arguments: Namespace) -> DrillSetting:
    seconds = drill.seconds
    if arguments.seconds is not None:
        seconds = parse_number("--seconds", arguments.seconds, SECONDS_MAX)
        if seconds < drill.seconds_min:
            remedy = f"give {drill.seconds_min:g} to {SECONDS_MAX:g} for {drill.name}"
            raise BadValue("--seconds", arguments.seconds, remedy)
    if arguments.policy not in drill.policies:
        remedy = f"{drill.name} has {', '.join(drill.policies)}"
        raise BadValue("--policy", arguments.policy, remedy)
    seed = parse_whole("--seed", arguments.seed, 0, SEED_MAX)
    return DrillSetting(
        seconds=seconds, policy=arguments.policy, seed=seed, progress=_print_progress
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadValue("--out", str(folder), f"name a folder: {error.strerror}") from None


def _print_progress(text: str) -> None:
    """Write to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
