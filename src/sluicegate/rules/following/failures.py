"""Failures of a node that follows a rulebook: by kind as counts, and by part as it stands now.

A part (the rollout, its expiry, the rules, the announcements, the disk, the reports) is failing
from its first failure until it next succeeds; a count only rises.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.rules.releases.signatures import Untrusted
from sluicegate.rules.snapshot.sections import DamagedSnapshot

# Kinds of failures.
UNREACHABLE: Final = "unreachable"  # something does not answer
UNTRUSTED: Final = "untrusted"  # unsigned, or not what was signed
DAMAGED: Final = "damaged"  # cannot be unpacked
REPLAYED: Final = "replayed"  # rollouts older than were seen
OLDER: Final = "older"  # a live version older than was ordered, without saying so
EXPIRED: Final = "expired"  # a rollout that nobody has renewed
REFUSED: Final = "refused"  # anything else: too new, too large, not wanted
KINDS: Final = (UNREACHABLE, UNTRUSTED, DAMAGED, REPLAYED, OLDER, EXPIRED, REFUSED)

# Parts that can fail, in the order in which they are reported.
RULES: Final = "rules"
ROLLOUT: Final = "orders"
EXPIRY: Final = "expiry"
ANNOUNCEMENTS: Final = "announcements"
DISK: Final = "disk"
REPORTS: Final = "reports"
PARTS: Final = (RULES, ROLLOUT, EXPIRY, ANNOUNCEMENTS, DISK, REPORTS)


def kind_of(error: Exception) -> str:
    """Of which kind a failure is."""
    if isinstance(error, Unavailable):
        return UNREACHABLE
    if isinstance(error, DamagedSnapshot):
        return DAMAGED
    if isinstance(error, Untrusted):
        return UNTRUSTED
    return REFUSED


@final
class FailureRecord:
    """Counts of failures, and the current ones; threads share it."""

    __slots__ = ("_failure_counts", "_failures", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._failure_counts = {(part, kind): 0 for part in PARTS for kind in KINDS}
        self._failures: dict[str, str] = {}

    def add(self, part: str, error: Exception, kind: str = "") -> bool:
        """Note a failure; whether it is another one than before, and worth a line in a log."""
        sentence = str(error) or repr(error)
        with self._lock:
            self._failure_counts[part, kind or kind_of(error)] += 1
            fresh = self._failures.get(part) != sentence
            self._failures[part] = sentence
        return fresh

    def count(self, part: str, kind: str) -> bool:
        """Count a failure that was worked around; whether to log it.

        The first, second, fourth, eighth ... are logged: whoever floods us shall not fill a disk.
        """
        with self._lock:
            count = self._failure_counts[part, kind] = self._failure_counts[part, kind] + 1
        return count & (count - 1) == 0

    def clear(self, part: str) -> bool:
        """Note that a part does well; whether it did not before."""
        with self._lock:
            return self._failures.pop(part, None) is not None

    @property
    def failures(self) -> Mapping[str, str]:
        """What is wrong now, by part."""
        with self._lock:
            return {part: self._failures[part] for part in PARTS if part in self._failures}

    @property
    def failure_counts(self) -> Mapping[tuple[str, str], int]:
        """How often which part failed in which way."""
        with self._lock:
            return dict(self._failure_counts)
