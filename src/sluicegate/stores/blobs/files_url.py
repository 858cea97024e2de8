"""What a blob store in files is told: a `files:` URL read into frozen settings, nothing opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.blobs.names import BLOB_BYTES_MAX
from sluicegate.stores.urls import (
    Query,
    as_seconds,
    bounded,
    check_bounds,
    parse_query,
    query_of,
    split_folder_url,
)

SCHEME: Final = "files:"
URL: Final = "blob_store.url"
# Who writes is one user; who else may read is the setting.
MODES: Final = (0o600, 0o640, 0o644)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlobSettings:
    """Where the blobs are, and who may read them; checked when made."""

    folder: str
    mode: int = 0o600  # of files; a folder's is the same, with search where there is reading
    bytes_max: int = bounded(BLOB_BYTES_MAX, 1, 1 << 40)  # of a blob that is written
    # That a write waits for others before it gives up
    lock_us: int = bounded(10_000_000, 1_000, 600_000_000)
    # A part of a write so old is left over, and removed
    sweep_us: int = bounded(3_600_000_000, 60_000_000, 10_000 * 86_400_000_000)

    def __post_init__(self) -> None:
        if not self.folder or "\0" in self.folder:
            raise BadValue("files.folder", self.folder, "give a folder: files:/var/lib/sluicegate")
        if self.mode not in MODES:
            raise BadValue("files.mode", f"{self.mode:o}", "give 600, 640 or 644")
        check_bounds(self, "files")

    @property
    def folder_mode(self) -> int:
        """As the files' mode: who may read may also enter."""
        return 0o700 | self.mode | (self.mode & 0o044) >> 2


def _octal(text: str) -> int:
    return int(text, 8)


# A query's name: the setting, and how its text is read.
_QUERY: Final[Query] = {
    **query_of(FileBlobSettings, "folder", "sweep_us"),
    "mode": ("mode", _octal, "a mode as 640"),
    "sweep_s": ("sweep_us", as_seconds, "seconds"),
}


def parse_url(url: str) -> FileBlobSettings:
    """The settings that `files:DIR?name=value` says; what it does not say has its default."""
    folder, pairs = split_folder_url(url, SCHEME, URL)
    values = parse_query(pairs, _QUERY, URL)
    return FileBlobSettings(folder=folder, **values)  # type: ignore[arg-type]
