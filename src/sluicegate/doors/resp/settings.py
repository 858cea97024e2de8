"""Settings: all that bounds a RESP connection, each by its name. Nothing else belongs here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RespSettings:
    """What a RESP connection may cost; checked when made."""

    parts_max: int = 4_096  # of one command, its name included
    bulk_bytes_max: int = 64 << 10  # of one part
    command_bytes_max: int = 1 << 20  # of all parts of a command together
    inline_bytes_max: int = 16 << 10  # of a command typed by hand
    # Of one who has not said who they are.
    stranger_parts_max: int = 16
    stranger_bulk_bytes_max: int = 8 << 10
    auth_failures_max: int = 10  # then the connection is closed
    auth_timeout_s: int = 60  # from the connection to a name, where one is needed
    command_timeout_s: int = 30  # from the first byte of a command to its last
    replies_owed_max: int = 1_024  # commands whose replies wait for a store; then reading stops
    replies_bytes_max: int = 16 << 20  # of those that are known, and wait for the ones before them
    door_bytes_max: int = 256 << 20  # the same, of all connections
    unread_bytes_max: int = 1 << 20  # sent while reading has stopped; more ends the connection
    turn_bytes: int = 64 << 10  # of replies that are gathered for one write
    name_bytes_max: int = 256  # of a client's name, and of its library's
    charges_max: int = 256  # of one SG.TAKE, SG.SETTLE or SG.FORGET; and rungs of a ladder
    headers_max: int = 64  # of one SG.CHECK
    limits_kept_max: int = 4_096  # limits of other limiters that are kept read
    cursors_max: int = 64  # of one caller's scans that are kept open
    scanners_max: int = 1_024  # callers with scans open
    scan_count_max: int = 1_000  # places that one SCAN looks at
    version: str = "0.1.0"  # as HELLO and INFO tell it

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise BadValue(f"resp.{name}", value, f"give a number from {least:,} to {most:,}")


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "parts_max": (8, 1 << 20),
    "bulk_bytes_max": (64, 512 << 20),
    "command_bytes_max": (64, 512 << 20),
    "inline_bytes_max": (64, 1 << 20),
    "stranger_parts_max": (8, 1 << 20),
    "stranger_bulk_bytes_max": (64, 512 << 20),
    "auth_failures_max": (1, 1 << 20),
    "auth_timeout_s": (1, 86_400),
    "command_timeout_s": (1, 86_400),
    "replies_owed_max": (1, 1 << 20),
    "replies_bytes_max": (1, 1 << 40),
    "door_bytes_max": (1, 1 << 40),
    "unread_bytes_max": (1_024, 1 << 30),
    "turn_bytes": (64, 1 << 30),
    "name_bytes_max": (1, 1 << 16),
    "charges_max": (1, 1 << 16),
    "headers_max": (0, 1 << 16),
    "limits_kept_max": (1, 1 << 20),
    "cursors_max": (2, 1 << 16),
    "scanners_max": (1, 1 << 20),
    "scan_count_max": (1, 1 << 20),
}
