"""What a log in files is told: a `files:` URL read into frozen settings. Nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue
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
ALWAYS: Final = "always"  # an event is acknowledged when the disk has it
SYSTEM: Final = "system"  # when the operating system has it: it outlives the process, no power cut
SKIP: Final = "skip"
STOP: Final = "stop"
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLogSettings:
    """Where the log is, how safe it is, and how much of it is kept; checked when made."""

    folder: str
    sync: str = ALWAYS
    # That a commit waits for company; what comes meanwhile shares its sync
    linger_us: int = bounded(0, 0, 10_000_000)
    pending_max: int = bounded(100_000, 1, 10_000_000)  # events that wait for the disk
    pending_bytes_max: int = bounded(64 << 20, 1, 1 << 34)
    segment_bytes_max: int = bounded(16 << 20, 1_024, 1 << 34)
    # The oldest segments go when all are larger than this, or older than the newest event by this.
    retain_bytes: int = bounded(1 << 30, 1_024, 1 << 50)
    retain_us: int = bounded(14 * _DAY_US, 1_000_000, 10_000 * _DAY_US)
    file_mode: int = bounded(0o600, 0o400, 0o777)
    folder_mode: int = bounded(0o700, 0o500, 0o777)
    damage: str = SKIP  # for readers: report what cannot be read and go on, or stop there
    poll_us: int = bounded(50_000, 1_000, 60_000_000)  # between a reader's looks for what is new

    def __post_init__(self) -> None:
        if not self.folder or "\0" in self.folder:
            raise BadValue(
                "files.folder", self.folder, "give a folder: files:/var/lib/sluicegate/dlq"
            )
        check_bounds(self, "files")
        for name, words in (("sync", (ALWAYS, SYSTEM)), ("damage", (SKIP, STOP))):
            if getattr(self, name) not in words:
                raise BadValue(f"files.{name}", getattr(self, name), f"give {' or '.join(words)}")


def _octal(text: str) -> int:
    return int(text, 8)


# A query's name: the setting, and how its text is read.
_QUERY: Final[Query] = {
    **query_of(FileLogSettings, "folder", "retain_us"),
    "retain_s": ("retain_us", as_seconds, "seconds"),
    "file_mode": ("file_mode", _octal, "a mode as 0600"),
    "folder_mode": ("folder_mode", _octal, "a mode as 0700"),
    "sync": ("sync", str, "always or system"),
    "damage": ("damage", str, "skip or stop"),
}


def parse_url(url: str) -> FileLogSettings:
    """The settings that `files:DIR?name=value` says; what it does not say has its default."""
    folder, pairs = split_folder_url(url, SCHEME, "event_log.url")
    values = parse_query(pairs, _QUERY, "event_log.url")
    return FileLogSettings(folder=folder, **values)  # type: ignore[arg-type]
