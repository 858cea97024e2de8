"""`sluicegate resilience plan`: a settings file's plan in a sentence, a table and warnings."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Final

from sluicegate.command_line.text import clip, counted, duration, table
from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.plan import HOURS_A_MONTH, ServicePlan, plan_of
from sluicegate.resilience.settings import Resilience

EXAMPLES: Final = """\
examples:
  sluicegate resilience plan resilience.toml
  sluicegate resilience plan resilience.toml --json      the same for programs
  sluicegate resilience plan resilience.toml --strict    exit code 1 if there is a warning, for CI

a settings file, of which only the dependencies must be there:
  [client]
  timeout_us = 800_000            # a whole call
  attempt_us = 250_000            # one attempt of it
  [client.retry]
  attempts = [3, 3, 3, 1]         # by class, CRITICAL first
  [client.retry_budget]
  deposit_milli = 100             # one repeat in ten calls
  [dependencies.price]
  count = 17                      # so many alike ones
  availability = 0.999            # of a single attempt
  lasting = 0.2                   # part of its failures that a repeat does not mend
  [dependencies.trends]
  count = 3
  soft = true                     # the answer can do without it
  timeout_us = 200_000
  [plan]
  deadline_us = 1_000_000         # how long callers wait
  layers = [3]                    # attempts of other layers that repeat the same work
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("file", metavar="SETTINGS.toml", help="settings, as Resilience.load reads")
    parser.add_argument("--json", action="store_true", help="print it for programs")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if there is a warning")


def run(arguments: Namespace) -> int:
    """Print the plan."""
    settings = Resilience.load(arguments.file)
    if not settings.dependencies:
        raise BadValue(
            "resilience.dependencies", {}, "name what the service calls, [dependencies.NAME]"
        )
    plan = plan_of(settings)
    if arguments.json:
        sys.stdout.write(f"{json.dumps(_as_json(plan))}\n")
    else:
        for line in lines_of(plan):
            sys.stdout.write(f"{line}\n")
    return int(bool(arguments.strict and plan.warnings))


def lines_of(plan: ServicePlan) -> Iterator[str]:
    """Say it for people: the sentence, the table, the warnings, the assumptions."""
    count = sum(one.settings.count for one in plan.dependencies)
    yield (
        f"{counted(count, 'dependency', 'dependencies')}: {_share(plan.answered)} of requests are "
        f"answered ({_down(plan.answered)} without an answer a month), where asking each once and "
        f"needing all would leave {_share(plan.without)} ({_down(plan.without)}); a request waits "
        f"for them {duration(plan.time_us)} at most."
    )
    yield ""
    head = [
        "dependency",
        "kind",
        "count",
        "longest call",
        "worst attempts",
        "load",
        "load, all failing",
        "one attempt",
        "a call",
    ]
    rows = [
        [
            clip(one.name),
            "soft" if one.settings.soft else "hard",
            f"{one.settings.count:,}",
            duration(one.time_us),
            f"{one.calls:,}",
            f"{one.load:.4g} x",
            f"{one.storm:.4g} x",
            _share(one.once),
            _share(one.repeated),
        ]
        for one in plan.dependencies
    ]
    yield from table(head, rows, left=2)
    yield ""
    yield f"complete, with nothing left out or replaced: {_share(plan.complete)} of requests"
    yield f"one request causes at worst {counted(plan.calls, 'call')} of dependencies"
    for warning in plan.warnings:
        yield f"warning: {warning}"
    yield (
        "taken for granted: the availability of one attempt and the part of failures that last, as "
        "the settings say; failures of different dependencies do not hang together"
    )


def _as_json(plan: ServicePlan) -> dict[str, object]:
    rows = []
    for one in plan.dependencies:
        row = one._asdict()
        row["settings"] = {"soft": one.settings.soft, "count": one.settings.count}
        rows.append(row)
    return {**plan._asdict(), "dependencies": rows, "warnings": list(plan.warnings)}


def _share(share: float) -> str:
    """As many digits as the nines need."""
    missing = 1.0 - share
    digits = 2
    while digits < 8 and 0 < missing < 5 * 10.0 ** -(digits + 1):
        digits += 1
    return f"{share:.{digits}%}"


def _down(share: float) -> str:
    return duration((1.0 - share) * HOURS_A_MONTH * 3.6e9)
