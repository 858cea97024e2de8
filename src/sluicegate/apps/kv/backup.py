"""`sluicegate kv backup FOLDER`: has a running dispatcher copy its embedded engine, online.

The folder is one of the machine where the dispatcher runs, below that of its `--backups`, and must
be empty or not there. To
restore, start `sluicegate kv --engine lmdb:FOLDER` on it, or on a copy of it.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from sluicegate.apps.kv.address import add_address_flags, address_of, dispatcher_at
from sluicegate.command_line.service_client import ask

COPY_S_MAX: Final = 600.0
EXAMPLES: Final = """\
examples:
  sluicegate kv backup /var/backups/kv-monday
  sluicegate kv --engine lmdb:/var/backups/kv-monday      the copy, served
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("folder", metavar="FOLDER", help="an empty folder on its machine")
    add_address_flags(parser, "with the grant operate")


def run(arguments: Namespace) -> int:
    """Request the copy, and wait for it."""
    folder = str(Path(arguments.folder).absolute())
    body = json.dumps({"folder": folder}).encode()
    where = address_of(arguments)
    what = dispatcher_at(where.url)
    reply = ask(where, what, "/v1/backup", method="POST", body=body, timeout_s=COPY_S_MAX)
    sys.stdout.write(f"copied {reply['bytes']:,} bytes to {folder}\n")
    return 0
