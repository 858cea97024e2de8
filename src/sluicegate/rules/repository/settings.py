"""What a repository is told: how much it reads at once, how long it waits, how far it walks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue

SUFFIXES: Final = (".yaml", ".yml", ".toml")  # what a file of rules is called, by default


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySettings:
    """The bounds of one repository; checked when made."""

    files_max: int = 10_000  # read or changed at once
    file_bytes_max: int = 16 << 20
    bytes_max: int = 256 << 20  # of all files read or changed at once
    object_bytes_max: int = 64 << 20  # unpacked, of whatever kind; no less than of a file
    entries_max: int = 1_000_000  # of trees looked through, whatever they are called
    depth_max: int = 32  # folders in folders
    name_bytes_max: int = 1_024
    message_bytes_max: int = 64 << 10
    refs_max: int = 100_000
    walk_max: int = 1_000_000  # commits looked at to tell how two of them are related
    parents_kept_max: int = 200_000  # of those, how many are remembered
    loose_max: int = 64  # objects written one by one; more of them go into a pack
    lock_us_max: int = 10_000_000  # that a ref locked by somebody else is waited for
    note_tries_max: int = 100  # while others note something too
    notes_bytes_max: int = 1 << 20  # of one commit
    remote_us_max: int = 60_000_000  # for a whole fetch or push
    remote_bytes_max: int = 1 << 30  # that one fetch may bring

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise BadValue(f"repository.{name}", value, f"give a number from {least} to {most}")
        if self.object_bytes_max < self.file_bytes_max:
            remedy = f"give at least file_bytes_max, {self.file_bytes_max}"
            raise BadValue("repository.object_bytes_max", self.object_bytes_max, remedy)


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "files_max": (1, 10_000_000),
    "file_bytes_max": (1, 1 << 31),
    "bytes_max": (1, 1 << 34),
    "object_bytes_max": (64 << 10, 1 << 31),
    "entries_max": (1, 100_000_000),
    "depth_max": (1, 256),
    "name_bytes_max": (16, 4_096),
    "message_bytes_max": (64, 16 << 20),
    "refs_max": (1, 10_000_000),
    "walk_max": (1, 100_000_000),
    "parents_kept_max": (1, 100_000_000),
    "loose_max": (0, 100_000),
    "lock_us_max": (0, 600_000_000),
    "note_tries_max": (1, 100_000),
    "notes_bytes_max": (64, 64 << 20),
    "remote_us_max": (1_000, 3_600_000_000),
    "remote_bytes_max": (1_024, 1 << 40),
}
