"""What LMDB is told: an `lmdb:` URL read into frozen settings, nothing opened."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.engines.group_commit import GroupCommitSettings
from sluicegate.stores.urls import Query, as_truth, check_numbers, parse_query, split_folder_url

SCHEME: Final = "lmdb:"
URL: Final = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class LmdbSettings:
    """Where the environment is, and its bounds; checked when made."""

    folder: str
    map_bytes: int = 1 << 30  # of address space to begin with; it grows by doubling
    map_bytes_max: int = 256 << 30
    sync: bool = True
    readers_max: int = 512  # reads under way in all processes
    group: GroupCommitSettings = GroupCommitSettings()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if not self.folder or "\0" in self.folder:
            raise BadValue("lmdb.folder", self.folder, "give a folder: lmdb:/var/lib/sluicegate/kv")
        check_numbers(self, _BOUNDS, "lmdb")
        if self.map_bytes > self.map_bytes_max:
            raise BadValue("lmdb.map_bytes", self.map_bytes, "give at most map_bytes_max")


_BOUNDS: Final = {
    "map_bytes": (1 << 20, 1 << 46),
    "map_bytes_max": (1 << 20, 1 << 46),
    "readers_max": (2, 1 << 16),
}
# Bounds of groups are said alike by every engine that has them.
GROUP_QUERY: Final[Query] = {
    "group_calls": ("calls_max", int, "a whole number"),
    "group_bytes": ("bytes_max", int, "a whole number"),
    "waiting_calls": ("waiting_calls_max", int, "a whole number"),
    "waiting_bytes": ("waiting_bytes_max", int, "a whole number"),
}
_QUERY: Final[Query] = {
    "map_bytes": ("map_bytes", int, "a whole number"),
    "map_bytes_max": ("map_bytes_max", int, "a whole number"),
    "sync": ("sync", as_truth, "on or off"),
    "readers": ("readers_max", int, "a whole number"),
}


def parse_url(url: str) -> LmdbSettings:
    """Parse `lmdb:DIR?name=value`; what it leaves out has its default."""
    folder, values = read_folder_url(url, SCHEME, _QUERY)
    return LmdbSettings(folder=folder, **values)  # type: ignore[arg-type]


def read_folder_url(url: str, scheme: str, query: Query) -> tuple[str, dict[str, object]]:
    """Return the folder of a URL and its settings, with the bounds of groups."""
    folder, pairs = split_folder_url(url, scheme, URL)
    values = parse_query(pairs, {**query, **GROUP_QUERY}, URL)
    of_group = {one.name for one in fields(GroupCommitSettings)}
    group = {name: values.pop(name) for name in list(values) if name in of_group}
    values["group"] = GroupCommitSettings(**group)  # type: ignore[arg-type]
    return folder, values
