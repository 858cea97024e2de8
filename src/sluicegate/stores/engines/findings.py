"""Findings: what a scrub has read so far, printed as lines of JSON for its parent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Final, final

from sluicegate.stores.engines.bounds import NUMBER_BYTES, behind, place_of, prefix_of

LISTED_MAX: Final = 100  # damaged rows that are named; all are counted
PROGRESS_ROWS: Final = 50_000  # between two lines
KEY_BYTES_SHOWN: Final = 80


@final
class Findings:
    """Counts what was read, and prints it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.verified = self.unverified = self.damaged = self.missing = 0
        self._printed = 0
        self._unreadable = (-1, "")  # the rows read before the last such place, and its error

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

    def found_unreadable(self, space: str, key: bytes, error: Exception) -> None:
        """Count the rows behind a key as one damage, although several starts of a walk meet it."""
        if self._unreadable != (self.rows, str(error)):
            self.found_damage(space, key, f"behind it: {error}")
            self._unreadable = (self.rows, str(error))

    def show_progress(self) -> None:
        """Print how far it is, if it is time to."""
        if self.rows - self._printed >= PROGRESS_ROWS:
            self._printed = self.rows
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


def _print(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
