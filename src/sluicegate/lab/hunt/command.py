"""The verb `sluicegate lab hunt`: its flags, and what it prints.

It exits with 0 if nothing broke, with 1 if something did. Ctrl-C ends it, and what was found so far
is printed.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from sluicegate.command_line.text import counted
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import parse_jobs, parse_number, parse_whole
from sluicegate.lab.progress import ProgressBar

if TYPE_CHECKING:
    from sluicegate.lab.hunt.search import HuntFinding

Write: TypeAlias = Callable[[str], object]
Progress: TypeAlias = Callable[[int, int, str], None]

EXAMPLES: Final = """\
examples:
  sluicegate lab hunt                             200 seeds, a minute or so
  sluicegate lab hunt --seed 4711 --seeds 1       one seed again
  sluicegate lab hunt --seeds 20000 --jobs 2 --minutes 30 --out found
  sluicegate lab hunt --again found/steady-17.json
"""
SEEDS_DEFAULT: Final = 200
SEEDS_MAX: Final = 100_000_000
MINUTES_MAX: Final = 100_000.0
OUT_DEFAULT: Final = "hunt-findings"


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "--seeds", metavar="N", default=str(SEEDS_DEFAULT), help="how many seeds (default 200)"
    )
    parser.add_argument("--seed", metavar="FIRST", default="0", help="the first seed (default 0)")
    parser.add_argument(
        "--jobs",
        metavar="N",
        default="1",
        help="how many processes, or auto: one a core (default 1)",
    )
    parser.add_argument("--minutes", metavar="M", help="stop after this many minutes")
    parser.add_argument(
        "--out",
        metavar="DIR",
        default=OUT_DEFAULT,
        help=f"the folder for findings (default {OUT_DEFAULT})",
    )
    parser.add_argument("--again", metavar="FILE", help="play a file that a hunt wrote")


def run(arguments: Namespace) -> int:
    """Hunt, or play a file again."""
    if arguments.again is not None:
        return again(Path(arguments.again), sys.stdout.write)
    first = parse_whole("--seed", arguments.seed, 0, SEEDS_MAX)
    seeds = range(first, first + parse_whole("--seeds", arguments.seeds, 1, SEEDS_MAX))
    return hunt(
        seeds,
        sys.stdout.write,
        ProgressBar(sys.stderr.write, live=sys.stderr.isatty()).show,
        jobs=parse_jobs(arguments.jobs),
        minutes=arguments.minutes and parse_number("--minutes", arguments.minutes, MINUTES_MAX),
        out=Path(arguments.out),
    )


def hunt(
    seeds: Sequence[int],
    write: Write,
    progress: Progress,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    out: Path | None = None,
) -> int:
    """Play all seeds, and print what broke as it breaks."""
    from sluicegate.lab.hunt import search  # noqa: PLC0415 - all policies come with it
    from sluicegate.system import SystemClock  # noqa: PLC0415

    found: dict[str, list[int]] = {}
    done = 0
    try:
        seeds_in_time = search.until(seeds, SystemClock(), minutes)
        for seed, broken in search.play_seeds(seeds_in_time, jobs):
            done += 1
            progress(done, len(seeds), f"{sum(map(len, found.values()))} found, seed {seed}")
            for one in broken:
                of = found.setdefault(one.invariant, [])
                of.append(seed)
                if len(of) <= search.SHRUNK_MAX:
                    write_found(search.write_down(seed, one, out), write)
    except KeyboardInterrupt:
        write("\nstopped\n")
    write_summary(found, done, write)
    return 1 if found else 0


def again(file: Path, write: Write) -> int:
    """Play a file, and write what breaks."""
    from sluicegate.lab.hunt.search import violations_of  # noqa: PLC0415
    from sluicegate.lab.hunt.setup import read_file  # noqa: PLC0415

    try:
        setup = read_file(file)
    except OSError as error:
        raise BadValue("--again", str(file), f"it cannot be read: {error.strerror}") from None
    except BadValue as error:
        raise BadValue(f"{file}: {error.field}", error.value, error.remedy) from None
    broken = violations_of(setup)
    for one in broken:
        write(f"BROKEN  {one.invariant}: {one.sentence}\n")
    if not broken:
        write(f"nothing breaks: stage {setup.stage}, seed {setup.seed}\n")
    return 1 if broken else 0


def write_found(found: HuntFinding, write: Write) -> None:
    """Write one finding: what broke, and how to repeat it."""
    write(f"BROKEN  {found.broken.invariant}: {found.broken.sentence}\n")
    write(f"  repeat: sluicegate lab hunt --seed {found.seed} --seeds 1\n")
    if found.file is not None:
        write(f"  small:  sluicegate lab hunt --again {found.file}\n")


def write_summary(found: dict[str, list[int]], done: int, write: Write) -> None:
    """Write how many broke what, and the first seeds of each."""
    if not found:
        write(f"{counted(done, 'seed')}, and nothing broke\n")
        return
    write(f"{counted(done, 'seed')}; broken:\n")
    for invariant, seeds in found.items():
        first_seeds = ", ".join(map(str, seeds[:10])) + (", ..." if len(seeds) > 10 else "")
        write(f"  {invariant}: {counted(len(seeds), 'time')}, by seed {first_seeds}\n")
