"""`sluicegate kv scrub`: reads all rows of an embedded engine and lists those that are damaged."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from typing import Any, Final

from sluicegate.contracts.errors import DataLoss
from sluicegate.stores.engines.scrub import check_target

DAMAGED: Final = 1  # the exit code
EXAMPLES: Final = """\
examples:
  sluicegate kv scrub --engine lmdb:data            exit code 1 if rows are damaged
  sluicegate kv scrub --engine rocksdb:/var/lib/sluicegate/kv
  sluicegate kv scrub --engine lmdb:/var/backups/kv-monday      before you restore it

It only reads, and may run beside the service.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--engine", required=True, metavar="URL", help="lmdb:DIR or rocksdb:DIR")


def run(arguments: Namespace) -> int:
    """Verify the rows in a separate process, which a damaged file may end."""
    try:
        check_target(arguments.engine)
    except DataLoss as error:
        sys.stdout.write(f"{error}\n")
        return DAMAGED
    program = [sys.executable, "-P", "-m", "sluicegate.stores.engines.scrub", arguments.engine]
    found: dict[str, Any] = {}
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        try:
            for line in reader.stdout:
                found = json.loads(line)
                _show(found)
        except KeyboardInterrupt:
            reader.terminate()
            raise
        errors = reader.stderr.read().decode("utf-8", "replace").strip()
        code = reader.wait()
    if code < 0:
        cause = signal.Signals(-code).name
        sys.stdout.write(f"the file is damaged: reading it ended the reader ({cause})\n{_FIX}\n")
        return DAMAGED
    if "end" not in found:
        last = errors.rpartition("\n")[2] or f"the reader exited with {code}"
        sys.stdout.write(f"{last}\n{_FIX}\n")
        return DAMAGED
    if found["damaged"] or found["missing"]:
        sys.stdout.write(f"{_FIX}\n")
        return DAMAGED
    return 0


_FIX: Final = "restore a backup, or write the damaged rows again"


def _show(line: dict[str, Any]) -> None:
    if "progress" in line:
        sys.stderr.write(f"verified {line['progress']:,} of about {line['of']:,} rows\n")
    elif "end" in line:
        sys.stdout.write(
            f"{line['end']:,} rows: {line['verified']:,} verified,"
            f" {line['unverified']:,} without a checksum, {line['damaged']:,} damaged,"
            f" {line['missing']:,} missing\n"
        )
    else:
        place = f"space {line['space']} partition {line['partition']} sort {line['sort']}"
        sys.stdout.write(f"damaged: {place}: {line['damaged']}\n")
