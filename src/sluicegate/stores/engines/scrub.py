"""Scrub: read every row of an embedded engine and verify it, in a process of its own.

    python -m sluicegate.stores.engines.scrub URL

It prints lines of JSON: `progress` now and then, `damaged` for each of the first rows, `end` with
the counts. It only reads, and may run beside the service. LMDB checks no offset within a page, so a
damaged file can end the process by a signal; whoever started it reports that as damage.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Final, final

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.stores.engines.folders import check_not_emptied, check_owner
from sluicegate.stores.engines.lmdb.keys import NUMBER_BYTES, behind, place_of, prefix_of
from sluicegate.stores.urls import split_folder_url

LISTED_MAX: Final = 100  # damaged rows that are named; all are counted
BATCH_ROWS: Final = 1_000  # in one snapshot: an open one keeps pages from being reused
PROGRESS_S: Final = 1.0
KEY_BYTES_SHOWN: Final = 80
_FILES: Final = {"lmdb": "data.mdb", "rocksdb": "CURRENT"}  # that each always has


@final
class Findings:
    """Counts what was read, and prints it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.verified = self.unverified = self.damaged = self.missing = 0
        self._printed_s = time.monotonic()

    @property
    def rows(self) -> int:
        """Rows that were read."""
        return self.verified + self.unverified + self.damaged

    def found_damage(self, space: str, key: bytes, seen: str) -> None:
        """Count a damaged row, and list it if it is one of the first."""
        self.damaged += 1
        if self.damaged > LISTED_MAX:
            return
        partition, sort = place_of(key) if len(key) > NUMBER_BYTES else (key, b"")
        _print(
            damaged=seen,
            space=space,
            partition=repr(partition[:KEY_BYTES_SHOWN]),
            sort=repr(sort[:KEY_BYTES_SHOWN]),
        )

    def show_progress(self) -> None:
        """Print how far it is, if it is time to."""
        now_s = time.monotonic()
        if now_s - self._printed_s >= PROGRESS_S:
            self._printed_s = now_s
            _print(progress=self.rows, of=self.total)

    def end(self) -> None:
        """Print the counts."""
        _print(
            end=self.rows,
            verified=self.verified,
            unverified=self.unverified,
            damaged=self.damaged,
            missing=self.missing,
        )


def next_starts(key: bytes) -> Iterator[bytes]:
    """Where to go on behind a key that cannot be passed: its partition, its space."""
    if len(key) > NUMBER_BYTES:
        partition, _ = place_of(key)
        yield behind(prefix_of(key[:NUMBER_BYTES], partition))
    if len(key) >= NUMBER_BYTES:
        yield behind(key[:NUMBER_BYTES])


def check_target(url: str) -> tuple[str, str]:
    """Return the scheme and the folder of an engine that can be scrubbed; nothing is opened."""
    scheme = url.partition(":")[0]
    if scheme not in _FILES:
        remedy = "give lmdb:DIR or rocksdb:DIR; other engines verify their own files"
        raise BadValue("--engine", f"{scheme}:...", remedy)
    folder, _ = split_folder_url(url, f"{scheme}:", "--engine")
    name = _FILES[scheme]
    check_owner(scheme, folder)
    check_not_emptied(scheme, folder, name)
    if not os.path.exists(os.path.join(folder, name)):
        raise BadValue("--engine", url, f"give the folder of a store; {name} is not in it")
    return scheme, folder


def scrub(url: str) -> None:
    """Verify the engine of a URL."""
    scheme, folder = check_target(url)
    if scheme == "lmdb":
        from sluicegate.stores.engines.lmdb.scrub import scrub_lmdb  # noqa: PLC0415 - if asked for

        scrub_lmdb(folder)
    else:
        from sluicegate.stores.engines.rocksdb.scrub import (  # noqa: PLC0415 - likewise
            scrub_rocksdb,
        )

        scrub_rocksdb(folder)


def _print(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        scrub(sys.argv[1])
    except SluicegateError as error:
        sys.exit(str(error))
