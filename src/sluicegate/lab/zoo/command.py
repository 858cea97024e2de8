"""The verb `sluicegate lab zoo`: all shapes, all candidates, and whether each bar is met."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import SEED_MAX, parse_jobs, parse_whole
from sluicegate.lab.progress import ProgressBar, write_status
from sluicegate.system import SystemClock

if TYPE_CHECKING:
    from sluicegate.lab.zoo.bars import Judged
    from sluicegate.lab.zoo.play import Outcomes, Play

EXAMPLES: Final = """\
examples:
  sluicegate lab zoo --jobs auto                 all shapes; the seed is the date
  sluicegate lab zoo --seed 20000 --shapes 'stalls; slow shard'
  sluicegate lab zoo --slots known --picture zoo.svg
  sluicegate lab zoo --sensitivity --jobs auto   every tuned constant halved and doubled
"""
MET: Final = 0
MISSED: Final = 1
SLOTS: Final = ("known", "found", "both")
_DAY_US: Final = 86_400_000_000


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add("--seed", metavar="N", help="seed of all draws (default: the number of the day)")
    add("--shapes", metavar="A;B", default="", help="only shapes whose name contains one of these")
    add("--candidates", metavar="A,B", default="", help="only these simple candidates")
    add("--slots", default="both", choices=SLOTS, help="limit given, found, or both (default)")
    add("--jobs", metavar="N", default="1", help="processes, or auto: one a core (default 1)")
    add("--json", action="store_true", help="print JSON")
    add("--list", action="store_true", help="print the names of the shapes")
    add("--picture", metavar="FILE", help="write the picture, as SVG")
    add("--sensitivity", action="store_true", help="play with each constant halved and doubled")


def run(arguments: Namespace) -> int:
    """Play, judge and print."""
    from sluicegate.lab.zoo import (  # noqa: PLC0415 - the policies come with it
        bars,
        play,
        sensitivity,
        text,
    )

    seed = SystemClock().now_us() // _DAY_US
    if arguments.seed is not None:
        seed = parse_whole("--seed", arguments.seed, 0, SEED_MAX)
    jobs = parse_jobs(arguments.jobs)
    shapes = play.choose(play.all_shapes(seed), arguments.shapes)
    write = sys.stdout.write
    if arguments.list:
        for shape in shapes:
            write(f"{play.key_of(shape)}\n")
        return MET
    constants = sensitivity.registered() if arguments.sensitivity else ()
    modes = play.PRODUCT if arguments.slots == "both" else (arguments.slots,)
    candidates = (*modes, *_simple(arguments.candidates), play.ORACLE)
    plays = [play.Play(seed, shape, candidates) for shape in shapes]
    played = _play(plays, jobs)
    judged = [row for shape, one in zip(shapes, played, strict=True)
              for row in bars.judge(shape, one)]  # fmt: skip
    over_all = bars.judge_all(judged)
    if arguments.picture:
        _draw(judged, arguments.picture)
    if arguments.json:
        write(f"{json.dumps(text.as_json(seed, judged, over_all), indent=1)}\n")
    else:
        limits = text.limit_rows(judged)
        write(f"seed {seed}; shares of the offered work\n")
        for line in [*text.shape_rows(judged), "", *(["LIMITS", *limits, ""] if limits else []),
                     *text.bar_rows(over_all), "", *text.summary(judged, over_all)]:  # fmt: skip
            write(f"{line}\n")
    met = all(one.met == one.shapes for one in over_all)
    if arguments.sensitivity:
        rows = sensitivity.compare(plays, played, lambda more: _play(more, jobs), constants)
        for line in sensitivity.lines(rows):
            write(f"{line}\n")
        met = met and not any(row.lost for row in rows)
    return MET if met else MISSED


def _simple(names: str) -> tuple[str, ...]:
    from sluicegate.lab.zoo.simple import SIMPLE  # noqa: PLC0415 - as above

    if not names:
        return tuple(SIMPLE)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in SIMPLE:
            raise BadValue("--candidates", name, f"give some of {', '.join(SIMPLE)}")
    return tuple(dict.fromkeys(["nothing", *wanted]))  # it is what all is compared with


def _play(plays: Sequence[Play], jobs: int) -> list[Outcomes]:
    from sluicegate.lab.zoo.play import play_all  # noqa: PLC0415 - as above

    bar = ProgressBar(write_status, live=sys.stderr.isatty())
    found: list[Outcomes] = []
    try:
        for one in play_all(plays, jobs):
            found.append(one)
            bar.show(len(found), len(plays), "shapes")
    finally:
        bar.clear()
    return found


def _draw(judged: Sequence[Judged], path: str) -> None:
    from sluicegate.lab.zoo.picture import draw  # noqa: PLC0415 - it draws

    try:
        Path(path).write_text(draw(judged), encoding="utf-8")
    except OSError as error:
        raise BadValue("--picture", path, f"give a file that can be written ({error})") from error
