"""The command `sluicegate lab`: its verbs, their flags, and what they print.

It exits with 0 when what it ran met its goals, with 1 when something did not: then the worst seed
of every goal that was missed is printed, and the command that repeats that run.

A verb that needs more than a few lines lives in a module of its own, which is imported when the
verb is chosen.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import BadValue

EXAMPLES: Final = """\
examples:
  sluicegate lab list                            the scenarios and who contends in them
  sluicegate lab run overload                    our contender, five seeds, the worst counts
  sluicegate lab run mine.py                     a scenario of your own, from its file
  sluicegate lab run all --jobs auto  all of them, in as many processes as there are cores
  sluicegate lab run overload --seed 7 --runs 1  one seed again
  sluicegate lab compare overload --with fifo,folly,kernels
  sluicegate lab report --out lab-report         a page to look at, with pictures
  sluicegate lab tune queue                      a sweep of settings, its frontier and its knee
  sluicegate lab replay requests.csv             a recorded trace against our chain and a baseline
  sluicegate lab what-if --capture DIR --rules live/ --rules new/ --capacity 2000
"""

RUNS_DEFAULT: Final = 5
RUNS_MAX: Final = 100_000
ALL: Final = "all"
_BAR: Final = 24


class Verb(NamedTuple):
    """A verb of a module of its own, which offers EXAMPLES, `add_arguments` and `run`."""

    name: str
    help: str
    module: str


VERBS: Final = (
    Verb("replay", "play a recorded trace against our chain and a baseline", "replay"),
    Verb(
        "what-if", "captured traffic against rulebooks: who is answered in time", "what_if.command"
    ),
    Verb("tune", "sweep settings, and name the knee of the frontier", "tune.command"),
    Verb("drill", "try the dispatcher's claims on real processes and sockets", "drills.command"),
    Verb("ycsb", "YCSB's mixes A to F against an engine or a dispatcher", "ycsb.command"),
    Verb("hunt", "look for a broken invariant with random faults", "hunt.command"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="the scenarios and who contends in them", allow_abbrev=False)
    run_one = _verb(verbs, "run", "try a scenario, and say which goals are met")
    _add_scenario(run_one, f"a scenario's name, number or .py file; {ALL} for all of ours")
    _add_runs(run_one)
    run_one.add_argument("--as", dest="contender", metavar="NAME", help="in place of ours")
    run_one.add_argument("--case", metavar="NAME", help="only this case of it")
    compare = _verb(verbs, "compare", "try several contenders on the same seeds")
    _add_scenario(compare, "a scenario's name, number or .py file")
    _add_runs(compare)
    compare.add_argument(
        "--with", dest="others", metavar="A,B", required=True, help="whom to compare ours with"
    )
    report = _verb(verbs, "report", "play scenarios, and make a page with pictures of them")
    report.add_argument(
        "names", metavar="NAME", nargs="*", help="names, numbers or .py files (default: all)"
    )
    _add_runs(report, jobs="auto")
    report.add_argument(
        "--out", metavar="DIR", default="lab-report", help="the folder (default lab-report)"
    )
    report.add_argument(
        "--no-drills", action="store_true", help="leave out what takes real processes and time"
    )
    report.add_argument(
        "--everyone", action="store_true", help="play those too who are in no picture"
    )
    for verb in VERBS:
        module = _module(verb)
        module.add_arguments(_verb(verbs, verb.name, verb.help, module.EXAMPLES))


def run(arguments: Namespace) -> int:
    """Run the verb."""
    for verb in VERBS:
        if arguments.verb == verb.name:
            code: int = _module(verb).run(arguments)
            return code
    from sluicegate.lab import show  # noqa: PLC0415 - the scenarios come with it
    from sluicegate.lab.jobs import parse_jobs  # noqa: PLC0415
    from sluicegate.lab.progress import Progress  # noqa: PLC0415

    write = sys.stdout.write
    if arguments.verb == "list":
        return show.listed(write)
    seeds = parse_seeds(arguments.seed, arguments.runs)
    jobs = parse_jobs(arguments.jobs)
    progress = Progress(tell, live=sys.stderr.isatty())
    if arguments.verb == "report":
        from sluicegate.lab.report import command as report  # noqa: PLC0415

        return report.run(
            arguments.names,
            seeds,
            arguments.out,
            write,
            tell,
            progress,
            jobs=jobs,
            drills=not arguments.no_drills,
            everyone=arguments.everyone,
        )
    if arguments.verb == "run":
        return show.some(
            arguments.name,
            seeds,
            write,
            progress,
            jobs=jobs,
            contender=arguments.contender,
            case=arguments.case,
        )
    others = [name.strip() for name in arguments.others.split(",") if name.strip()]
    if not others:
        raise BadValue("--with", arguments.others, "name contenders, with commas between")
    return show.several(arguments.name, others, seeds, write, progress, jobs=jobs)


def parse_seeds(seed: str, runs: str) -> range:
    """The seeds to run: `runs` of them from `seed` on."""
    if not seed.isdecimal() or int(seed) >= 1 << 63:
        raise BadValue("--seed", seed, "give a whole number from 0")
    if not runs.isdecimal() or not 1 <= int(runs) <= RUNS_MAX:
        raise BadValue("--runs", runs, f"give a whole number from 1 to {RUNS_MAX}")
    return range(int(seed), int(seed) + int(runs))


def _verb(verbs: Any, name: str, purpose: str, examples: str = EXAMPLES) -> ArgumentParser:
    parser: ArgumentParser = verbs.add_parser(
        name,
        help=purpose,
        description=f"{purpose[0].upper()}{purpose[1:]}.",
        epilog=examples,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def _add_scenario(parser: ArgumentParser, words: str) -> None:
    parser.add_argument("name", metavar="NAME", help=words)


def _add_runs(parser: ArgumentParser, *, jobs: str = "1") -> None:
    parser.add_argument("--seed", metavar="N", default="0", help="the first seed (default 0)")
    parser.add_argument(
        "--runs",
        metavar="K",
        default=str(RUNS_DEFAULT),
        help=f"so many seeds, and the worst counts (default {RUNS_DEFAULT})",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        default=jobs,
        help=f"so many processes, or auto: one a core (default {jobs})",
    )


def _module(verb: Verb) -> Any:
    return import_module(f"sluicegate.lab.{verb.module}")


def tell(text: str) -> None:
    """To whoever watches; at once, since a bar has no line's end."""
    sys.stderr.write(text)
    sys.stderr.flush()


def bar(write: Callable[[str], object], *, live: bool) -> Callable[[int, int, str], None]:
    """What shows how far it is, on a terminal; nothing is shown elsewhere."""

    def show(done: int, total: int, what: str) -> None:
        if not live:
            return
        full = _BAR * done // total
        line = f"\r[{'#' * full}{'.' * (_BAR - full)}] {done}/{total} {what:<40.40}"
        write("\r" + " " * (len(line) - 1) + "\r" if done == total else line)

    return show
