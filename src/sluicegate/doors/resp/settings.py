"""Settings: all that bounds a RESP connection, each by its name. Nothing else belongs here."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class RespSettings:
    """What a RESP connection may cost; checked when made."""

    parts_max: int = ranged(4_096, 8, 1 << 20)  # of one command, its name included
    bulk_bytes_max: int = ranged(64 << 10, 64, 512 << 20)  # of one part
    command_bytes_max: int = ranged(1 << 20, 64, 512 << 20)  # of all parts of a command together
    inline_bytes_max: int = ranged(16 << 10, 64, 1 << 20)  # of a command typed by hand
    # Of one who has not said who they are.
    stranger_parts_max: int = ranged(16, 8, 1 << 20)
    stranger_bulk_bytes_max: int = ranged(8 << 10, 64, 512 << 20)
    auth_failures_max: int = ranged(10, 1, 1 << 20)  # then the connection is closed
    # From the connection to a name, where one is needed.
    auth_timeout_s: int = ranged(60, 1, 86_400)
    command_timeout_s: int = ranged(30, 1, 86_400)  # from the first byte of a command to its last
    # Commands whose replies wait for a store; then reading stops.
    replies_owed_max: int = ranged(1_024, 1, 1 << 20)
    # Of those that are known, and wait for the ones before them.
    replies_bytes_max: int = ranged(16 << 20, 1, 1 << 40)
    reply_bytes_max: int = ranged(1 << 20, 1_024, 1 << 30)  # of one; a longer one is an error
    door_bytes_max: int = ranged(256 << 20, 1, 1 << 40)  # the same, of all connections
    # Sent while reading has stopped; more ends the connection.
    unread_bytes_max: int = ranged(1 << 20, 1_024, 1 << 30)
    turn_bytes: int = ranged(64 << 10, 64, 1 << 30)  # of replies that are gathered for one write
    # Of one connection in a turn of the loop, then of all of them together; then they wait for the
    # next. A command of many parts, or with a long reply, counts as several.
    connection_commands_max: int = ranged(256, 1, 1 << 20)
    turn_commands_max: int = ranged(4_096, 1, 1 << 20)
    turn_us_max: int = ranged(1_000, 1, 1_000_000)
    turn_by_class: bool = True  # False: in the order in which they were read
    name_bytes_max: int = ranged(256, 1, 1 << 16)  # of a client's name, and of its library's
    # Of one SG.TAKE, SG.SETTLE or SG.FORGET; and rungs of a ladder.
    charges_max: int = ranged(256, 1, 1 << 16)
    headers_max: int = ranged(64, 0, 1 << 16)  # of one SG.CHECK
    limits_kept_max: int = ranged(4_096, 1, 1 << 20)  # limits of other limiters that are kept read
    cursors_max: int = ranged(64, 2, 1 << 16)  # of one caller's scans that are kept open
    scanners_max: int = ranged(1_024, 1, 1 << 20)  # callers with scans open
    scan_count_max: int = ranged(1_000, 1, 1 << 20)  # places that one SCAN looks at
    version: str = "0.1.0"  # as HELLO and INFO tell it

    def __post_init__(self) -> None:
        check_ranges("resp", self)
