"""`sluicegate why USER`: ask a running limiter or dispatcher why a user was refused.

It reads `/v1/audit` of the service, which keeps a bounded number of recent decisions, and prints
each in a line that a person can act on. Nothing is decided or counted here.
"""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from typing import Any, Final
from urllib.parse import quote

from sluicegate.apps.limiter.settings import LISTEN_DEFAULT
from sluicegate.command_line.decision_words import describe
from sluicegate.command_line.service_client import (
    TOKEN_VARIABLE,
    add_address_flags,
    address_from,
    ask,
)
from sluicegate.contracts.errors import BadValue
from sluicegate.system import now_us

AT_DEFAULT: Final = f"http://{LISTEN_DEFAULT}"
TIMEOUT_S: Final = 5.0
_AGE: Final = re.compile(r"[0-9]{1,9}(ms|s|m|h|d)")

EXAMPLES: Final = f"""\
examples:
  sluicegate why ann                          the last decisions about ann
  sluicegate why ann --since 10m              of the last ten minutes
  sluicegate why shop --at http://127.0.0.1:7080   what a dispatcher refused
  sluicegate why ann --json | jq .            for programs
  {TOKEN_VARIABLE}=... sluicegate why ann --at https://limiter.internal:7070 --ca ca.pem
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "user",
        metavar="USER",
        help="the user_id (for Envoy: a descriptor's value), of `sluicegate kv` the caller",
    )
    parser.add_argument("--since", default="1h", metavar="SPAN", help="30s, 10m, 1h (default 1h)")
    parser.add_argument("--count", default=50, type=int, metavar="N", help="at most (default 50)")
    add_address_flags(parser, AT_DEFAULT, "with the grant audit", "--at")
    parser.add_argument("--json", action="store_true", help="what the service says, as JSON")


def run(arguments: Namespace) -> int:
    """Ask, and tell."""
    if not _AGE.fullmatch(arguments.since):
        raise BadValue("--since", arguments.since, "write a number and ms, s, m, h or d, as 10m")
    if not 1 <= arguments.count <= 10_000:
        raise BadValue("--count", arguments.count, "give a number from 1 to 10,000")
    user = quote(os.fsencode(arguments.user), safe="")
    path = f"/v1/audit?user={user}&since={arguments.since}"
    address = address_from(arguments.at, arguments, flag="--at", example=AT_DEFAULT)
    what = f"the service at {address.url}"
    path = f"{path}&count={arguments.count}"
    body = ask(address, what, path, timeout_s=TIMEOUT_S, grant="audit")
    if arguments.json:
        json.dump(body, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    entries: list[dict[str, Any]] = body["decisions"]
    if not entries:
        sys.stdout.write(
            f"nothing is kept about {arguments.user!r} of the last {arguments.since}: it did not "
            "ask, or newer decisions took its place (--audit-refusals)"
            "\n"
        )
    at_us = now_us()
    for entry in entries:
        sys.stdout.write(describe(entry, at_us) + "\n")
    return 0
