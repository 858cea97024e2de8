"""What a repository is told: how much it reads at once, how long it waits, how far it walks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges

SUFFIXES: Final = (".yaml", ".yml", ".toml")  # what a file of rules is called, by default


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySettings:
    """The bounds of one repository; checked when made."""

    files_max: int = ranged(10_000, 1, 10_000_000)  # read or changed at once
    file_bytes_max: int = ranged(16 << 20, 1, 1 << 31)
    bytes_max: int = ranged(256 << 20, 1, 1 << 34)  # of all files read or changed at once
    # Unpacked, of whatever kind; no less than of a file.
    object_bytes_max: int = ranged(64 << 20, 64 << 10, 1 << 31)
    # Of trees looked through, whatever they are called.
    entries_max: int = ranged(1_000_000, 1, 100_000_000)
    depth_max: int = ranged(32, 1, 256)  # folders in folders
    name_bytes_max: int = ranged(1_024, 16, 4_096)
    message_bytes_max: int = ranged(64 << 10, 64, 16 << 20)
    refs_max: int = ranged(100_000, 1, 10_000_000)
    # Commits looked at to tell how two of them are related.
    walk_max: int = ranged(1_000_000, 1, 100_000_000)
    parents_kept_max: int = ranged(200_000, 1, 100_000_000)  # of those, how many are remembered
    # Objects written one by one; more of them go into a pack.
    loose_max: int = ranged(64, 0, 100_000)
    # That a ref locked by somebody else is waited for.
    lock_us_max: int = ranged(10_000_000, 0, 600_000_000)
    note_tries_max: int = ranged(100, 1, 100_000)  # while others note something too
    notes_bytes_max: int = ranged(1 << 20, 64, 64 << 20)  # of one commit
    remote_us_max: int = ranged(60_000_000, 1_000, 3_600_000_000)  # for a whole fetch or push
    remote_bytes_max: int = ranged(1 << 30, 1_024, 1 << 40)  # that one fetch may bring

    def __post_init__(self) -> None:
        check_ranges("repository", self)
        if self.object_bytes_max < self.file_bytes_max:
            remedy = f"give at least file_bytes_max, {self.file_bytes_max}"
            raise BadValue("repository.object_bytes_max", self.object_bytes_max, remedy)
