"""The command `headgate lab`: its verbs, their flags, and what they print.

It exits with 0 when what it ran met its goals, with 1 when something did not: then the worst seed
of every goal that was missed is printed, and the command that repeats that run.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Final

from headgate.contracts.errors import BadValue

EXAMPLES: Final = """\
examples:
  headgate lab list                            the scenarios and who contends in them
  headgate lab run overload                    our contender, five seeds, the worst counts
  headgate lab run overload --seed 7 --runs 1  one seed again
  headgate lab compare overload --with fifo,folly,kernels
"""

RUNS_DEFAULT: Final = 5
RUNS_MAX: Final = 100_000
_BAR: Final = 24


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="the scenarios and who contends in them", allow_abbrev=False)
    run_one = verbs.add_parser(
        "run",
        help="try a scenario, and say which goals are met",
        description="Try a scenario, and say which goals are met.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_flags(run_one)
    run_one.add_argument("--as", dest="contender", metavar="NAME", help="in place of ours")
    run_one.add_argument("--case", metavar="NAME", help="only this case of it")
    compare = verbs.add_parser(
        "compare",
        help="try several contenders on the same seeds",
        description="Try several contenders on the same seeds.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_flags(compare)
    compare.add_argument(
        "--with", dest="others", metavar="A,B", required=True, help="whom to compare ours with"
    )


def run(arguments: Namespace) -> int:
    """Run the verb."""
    from headgate.lab import show  # noqa: PLC0415 - the scenarios come with it

    if arguments.verb == "list":
        return show.listed(sys.stdout.write)
    seeds = parse_seeds(arguments.seed, arguments.runs)
    progress = bar(sys.stderr.write, live=sys.stderr.isatty())
    if arguments.verb == "run":
        return show.one(
            arguments.name,
            seeds,
            sys.stdout.write,
            progress,
            contender=arguments.contender,
            case=arguments.case,
        )
    others = [name.strip() for name in arguments.others.split(",") if name.strip()]
    if not others:
        raise BadValue("--with", arguments.others, "name contenders, with commas between")
    return show.several(arguments.name, others, seeds, sys.stdout.write, progress)


def parse_seeds(seed: str, runs: str) -> range:
    """The seeds to run: `runs` of them from `seed` on."""
    if not seed.isdecimal() or int(seed) >= 1 << 63:
        raise BadValue("--seed", seed, "give a whole number from 0")
    if not runs.isdecimal() or not 1 <= int(runs) <= RUNS_MAX:
        raise BadValue("--runs", runs, f"give a whole number from 1 to {RUNS_MAX}")
    return range(int(seed), int(seed) + int(runs))


def bar(write: Callable[[str], object], *, live: bool) -> Callable[[int, int, str], None]:
    """What shows how far it is, on a terminal; nothing is shown elsewhere."""

    def show(done: int, total: int, what: str) -> None:
        if not live:
            return
        full = _BAR * done // total
        line = f"\r[{'#' * full}{'.' * (_BAR - full)}] {done}/{total} {what:<40.40}"
        write("\r" + " " * (len(line) - 1) + "\r" if done == total else line)

    return show


def _add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a scenario's name or number")
    parser.add_argument("--seed", metavar="N", default="0", help="the first seed (default 0)")
    parser.add_argument(
        "--runs",
        metavar="K",
        default=str(RUNS_DEFAULT),
        help=f"so many seeds, and the worst counts (default {RUNS_DEFAULT})",
    )
