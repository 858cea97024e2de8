"""The command `sluicegate up`: its flags, and the step from them to a run.

Light to import: what runs it is imported when it is to run.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace

from sluicegate.contracts.errors import BadValue

EXAMPLES = """\
examples:
  sluicegate up                          every service that is installed, a console in the
                                         browser, and a load that tells a story; Enter pauses it
  sluicegate up --no-load                only what you ask them
  sluicegate up --free-ports --for 60    on free ports, for a minute

then, from another terminal:
  sluicegate top
  curl -i http://127.0.0.1:7070/v1/check -H 'Content-Type: application/json' \\
       -d '{"user_id": "you", "resource_path": "/search"}'
  curl http://127.0.0.1:7080/v1/tables/listings/rows/42/0
  sluicegate why nightly --at http://127.0.0.1:7080"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--no-load", action="store_true", help="start them, and ask nothing")
    parser.add_argument(
        "--free-ports",
        action="store_true",
        help="take free ports, and not those that the services have by default",
    )
    parser.add_argument("--for", dest="for_s", metavar="SECONDS", help="end after this time")


def run(arguments: Namespace) -> int:
    """Run them until a signal ends it."""
    for_s = math.inf if arguments.for_s is None else parse_for(arguments.for_s)
    from sluicegate.apps.up.run import up  # noqa: PLC0415 - it brings what runs processes

    return up(for_s=for_s, own_ports=not arguments.free_ports, load=not arguments.no_load)


def parse_for(text: str) -> float:
    """Seconds until it ends by itself."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadValue("--for", text, "give seconds, more than 0")
    return seconds
