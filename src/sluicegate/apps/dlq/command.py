"""The command `sluicegate dlq`: its verbs, their flags, and who runs them.

Light to import: what reads logs or asks stores is imported when a verb is run.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.command_line.verbs import add_verb
from sluicegate.contracts.errors import BadValue

STORE_VARIABLE: Final = "SLUICEGATE_STORE_URL"
LOG_VARIABLE: Final = "SLUICEGATE_DLQ"

EXAMPLES: Final = """\
examples:
  sluicegate dlq show files:/var/lib/sluicegate/dlq --since 10m --user tenant:42
  sluicegate dlq check files:/var/lib/sluicegate/dlq --decisions decisions.jsonl
  sluicegate dlq replay kafka://localhost:9092/sluicegate-dlq --store redis://localhost --dry-run
  sluicegate dlq show --help                          the flags of a verb, with examples

A log is files:DIR or kafka://host:port,host2:port/topic. Several may be given; they are read as
one. Without any, SLUICEGATE_DLQ says it.
"""

SHOW_EXAMPLES: Final = """\
examples:
  sluicegate dlq show files:dlq                       every letter, oldest first
  sluicegate dlq show files:dlq --since 10m --rule login
  sluicegate dlq show kafka://localhost:9092/dlq --follow --json

exit code: 0 it was shown; 1 the log cannot be read; 2 asked wrongly
"""

CHECK_EXAMPLES: Final = """\
examples:
  sluicegate dlq check files:dlq                      what the letters say by themselves
  sluicegate dlq check files:dlq --decisions decisions.jsonl
  sluicegate dlq check files:dlq --store redis://localhost:6379/0 --since 10m
  sluicegate dlq check files:node-1 files:node-2 --user tenant:42 --json

exit code: 0 all is as it should be; 1 it is not, or the log cannot be read; 2 asked wrongly
"""

REPLAY_EXAMPLES: Final = """\
examples:
  sluicegate dlq replay files:dlq --store redis://localhost:6379/0 --dry-run
  sluicegate dlq replay files:dlq --store redis://localhost:6379/0

a letter is charged once, however often this is run.
exit code: 0 it was charged; 1 the log or the store failed; 2 asked wrongly
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, purpose, examples, add in (
        ("show", "print letters", SHOW_EXAMPLES, _add_show),
        (
            "check",
            "say who was wrongly admitted or refused, and what is missing",
            CHECK_EXAMPLES,
            _add_check,
        ),
        (
            "replay",
            "charge the store with what was admitted without it",
            REPLAY_EXAMPLES,
            _add_replay,
        ),
    ):
        verb = add_verb(verbs, name, purpose, examples)
        verb.add_argument(
            "urls", metavar="URL", nargs="*", help=f"of a log; default: ${LOG_VARIABLE}"
        )
        verb.add_argument("--since", metavar="SPAN", help="only what is newer: 90s, 10m, 2h or 7d")
        verb.add_argument("--user", default="", help="only this user, or other entity")
        verb.add_argument("--rule", metavar="ID", default="", help="only this rule")
        verb.add_argument("--json", action="store_true", help="print JSON")
        verb.add_argument(
            "--patience",
            metavar="SPAN",
            default="10s",
            help="how long to wait for a silent log; default: %(default)s",
        )
        add(verb)


def _add_show(verb: ArgumentParser) -> None:
    verb.add_argument("--follow", action="store_true", help="show new letters until Ctrl-C")


def _add_check(verb: ArgumentParser) -> None:
    verb.add_argument(
        "--decisions",
        metavar="FILE",
        nargs="+",
        default=[],
        help="JSON lines of all decisions: at_us, user, rule, weight, allowed, degraded, id",
    )
    _add_store(verb, "compare with the counters there")


def _add_replay(verb: ArgumentParser) -> None:
    _add_store(verb, f"default: ${STORE_VARIABLE}")
    verb.add_argument("--dry-run", action="store_true", help="show what would be charged, and stop")


def _add_store(verb: ArgumentParser, purpose: str) -> None:
    verb.add_argument("--store", metavar="URL", default="", help=purpose)
    verb.add_argument(
        "--prefix",
        default="rate_limit",
        help="of the limiter's keys in a Redis; default: %(default)s",
    )


def run(arguments: Namespace) -> int:
    """Run the verb."""
    if not arguments.urls:
        arguments.urls = os.environ.get(LOG_VARIABLE, "").split()
    if not arguments.urls:
        raise BadValue("URL", "", f"give a log, as files:DIR, or put it into {LOG_VARIABLE}")
    if arguments.verb == "show":
        from sluicegate.apps.dlq.show import show  # noqa: PLC0415 - logs come with it

        return show(arguments)
    if arguments.verb == "check":
        from sluicegate.apps.dlq.check import check  # noqa: PLC0415 - likewise

        return check(arguments)
    from sluicegate.apps.dlq.replay import replay  # noqa: PLC0415 - likewise

    arguments.store = arguments.store or os.environ.get(STORE_VARIABLE, "")
    return replay(arguments)
