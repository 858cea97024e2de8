"""What a blob store in files is told: a `files:` URL read into frozen settings, nothing opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.blobs.names import BLOB_BYTES_MAX
from sluicegate.stores.urls import (
    Query,
    as_ms,
    as_seconds,
    check_numbers,
    parse_query,
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
    bytes_max: int = BLOB_BYTES_MAX  # of a blob that is written
    lock_us: int = 10_000_000  # that a write waits for others before it gives up
    sweep_us: int = 3_600_000_000  # a part of a write so old is left over, and removed

    def __post_init__(self) -> None:
        if not self.folder or "\0" in self.folder:
            raise BadValue("files.folder", self.folder, "give a folder: files:/var/lib/sluicegate")
        if self.mode not in MODES:
            raise BadValue("files.mode", f"{self.mode:o}", "give 600, 640 or 644")
        check_numbers(self, _BOUNDS, "files")

    @property
    def folder_mode(self) -> int:
        """As the files' mode: who may read may also enter."""
        return 0o700 | self.mode | (self.mode & 0o044) >> 2


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "bytes_max": (1, 1 << 40),
    "lock_us": (1_000, 600_000_000),
    "sweep_us": (60_000_000, 10_000 * 86_400_000_000),
}


def _octal(text: str) -> int:
    return int(text, 8)


# A query's name: the setting, and how its text is read.
_QUERY: Final[Query] = {
    "mode": ("mode", _octal, "a mode as 640"),
    "bytes_max": ("bytes_max", int, "a whole number"),
    "lock_ms": ("lock_us", as_ms, "milliseconds"),
    "sweep_s": ("sweep_us", as_seconds, "seconds"),
}


def parse_url(url: str) -> FileBlobSettings:
    """The settings that `files:DIR?name=value` says; what it does not say has its default."""
    folder, pairs = split_folder_url(url, SCHEME, URL)
    values = parse_query(pairs, _QUERY, URL)
    return FileBlobSettings(folder=folder, **values)  # type: ignore[arg-type]
