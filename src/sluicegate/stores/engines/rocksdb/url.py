"""What RocksDB is told: a `rocksdb:` URL read into frozen settings, nothing opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.engines.group_commit import GroupCommitSettings
from sluicegate.stores.engines.lmdb.url import read_folder_url
from sluicegate.stores.urls import Query, as_truth, check_numbers

SCHEME: Final = "rocksdb:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksSettings:
    """Where the database is, and its bounds; checked when made."""

    folder: str
    sync: bool = True
    buffer_bytes: int = 64 << 20  # of writes in memory before they become a file
    files_max: int = 512  # that are open at once
    jobs_max: int = 2  # threads that compact and flush
    group: GroupCommitSettings = GroupCommitSettings()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if not self.folder or "\0" in self.folder:
            raise BadValue("rocksdb.folder", self.folder, "give a folder: rocksdb:/var/lib/kv")
        check_numbers(self, _BOUNDS, "rocksdb")


_BOUNDS: Final = {
    "buffer_bytes": (1 << 16, 1 << 36),
    "files_max": (16, 1 << 20),
    "jobs_max": (1, 256),
}
_QUERY: Final[Query] = {
    "sync": ("sync", as_truth, "on or off"),
    "buffer_bytes": ("buffer_bytes", int, "a whole number"),
    "files": ("files_max", int, "a whole number"),
    "jobs": ("jobs_max", int, "a whole number"),
}


def parse_url(url: str) -> RocksSettings:
    """Parse `rocksdb:DIR?name=value`; what it leaves out has its default."""
    folder, values = read_folder_url(url, SCHEME, _QUERY)
    return RocksSettings(folder=folder, **values)  # type: ignore[arg-type]
