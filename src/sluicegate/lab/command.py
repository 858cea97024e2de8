"""The command `sluicegate lab`: its verbs, their flags, and what they print.

It exits with 0 when what it ran met its goals, with 1 when something did not: then the worst seed
of every goal that was missed is printed, and the command that repeats that run.

A verb that needs more than a few lines has a module of its own. What such a module needs to run
(scenarios, policies) it imports when it runs: all of them are imported for the flags.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Any, Final, NamedTuple

from sluicegate.command_line.verbs import add_verb
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import add_run_arguments, parse_jobs, parse_seeds
from sluicegate.lab.own_numbers import command as own_numbers
from sluicegate.lab.progress import RunProgress, write_status

EXAMPLES: Final = """\
examples:
  sluicegate lab list                            the scenarios and their candidates
  sluicegate lab run overload                    our candidate, five seeds, the worst counts
  sluicegate lab run mine.py                     a scenario of your own, from its file
  sluicegate lab run all --jobs auto             all of them, in one process a core
  sluicegate lab run overload --seed 7 --runs 1  one seed again
  sluicegate lab run overload --seed 1000 --seeds 100 --jobs auto
  sluicegate lab run overload --workers 16 --work 30ms --arrivals on-off:50ms/50ms \\
      --mix critical=20%,bulk=80%                a station of your own: the answer in a sentence
  sluicegate lab run mine.toml                   the same from a file, with goals
  sluicegate lab compare overload --with fifo,folly,dispatcher
  sluicegate lab report --out lab-report         a page with plots
  sluicegate lab replay requests.csv             a recorded trace against our chain and a baseline
  sluicegate lab what-if --capture DIR --rules live/ --rules new/ --capacity 2000
  sluicegate lab zoo --jobs auto                 many shapes: never worse than no protection
"""


class LabVerb(NamedTuple):
    """A verb with a module of its own, which offers EXAMPLES, `add_arguments` and `run`."""

    name: str
    help: str
    module: str


VERBS: Final = (
    LabVerb("report", "run scenarios, and write a page with plots of them", "report.command"),
    LabVerb("replay", "run a recorded trace against our chain and a baseline", "replay.command"),
    LabVerb(
        "what-if", "captured traffic against rulebooks: who is answered in time", "what_if.command"
    ),
    LabVerb(
        "drill", "test claims of the dispatcher on real processes and sockets", "drills.command"
    ),
    LabVerb("hunt", "look for a broken invariant with random faults", "hunt.command"),
    LabVerb("zoo", "shapes of service and engine against baselines and an oracle", "zoo.command"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="the scenarios and their candidates", allow_abbrev=False)
    run_one = add_verb(verbs, "run", "run a scenario, and say which goals are met", EXAMPLES)
    run_one.add_argument(
        "name", metavar="NAME", help="a scenario's name, number or file (.py, .toml); all for all"
    )
    add_run_arguments(run_one)
    run_one.add_argument("--as", dest="candidate", metavar="NAME", help="candidate to run")
    run_one.add_argument("--case", metavar="NAME", help="only this case of the scenario")
    run_one.add_argument("--json", action="store_true", help="print JSON")
    own_numbers.add_arguments(run_one)
    compare = add_verb(verbs, "compare", "run several candidates on the same seeds", EXAMPLES)
    compare.add_argument("name", metavar="NAME", help="a scenario's name, number or .py file")
    add_run_arguments(compare)
    compare.add_argument(
        "--with",
        dest="others",
        metavar="A,B",
        required=True,
        help="the candidates to compare ours with",
    )
    for verb in VERBS:
        module = _module(verb)
        module.add_arguments(add_verb(verbs, verb.name, verb.help, module.EXAMPLES))


def run(arguments: Namespace) -> int:
    """Run the verb."""
    for verb in VERBS:
        if arguments.verb == verb.name:
            code: int = _module(verb).run(arguments)
            return code
    if arguments.verb == "run" and own_numbers.wanted(arguments):
        return own_numbers.run(arguments)
    from sluicegate.lab import scenario_verbs  # noqa: PLC0415 - the scenarios come with it

    write = sys.stdout.write
    if arguments.verb == "list":
        return scenario_verbs.list_scenarios(write)
    seeds = parse_seeds(arguments.seed, arguments.runs)
    jobs = parse_jobs(arguments.jobs)
    progress = RunProgress(write_status, live=sys.stderr.isatty())
    if arguments.verb == "run":
        return scenario_verbs.run_scenarios(
            arguments.name,
            seeds,
            write,
            progress,
            jobs=jobs,
            candidate=arguments.candidate,
            case=arguments.case,
            as_json=arguments.json,
        )
    others = [name.strip() for name in arguments.others.split(",") if name.strip()]
    if not others:
        raise BadValue("--with", arguments.others, "name candidates, with commas between")
    return scenario_verbs.compare_candidates(
        arguments.name, others, seeds, write, progress, jobs=jobs
    )


def _module(verb: LabVerb) -> Any:
    return import_module(f"sluicegate.lab.{verb.module}")
