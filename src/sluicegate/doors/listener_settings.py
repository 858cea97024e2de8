"""Bounds: all that limits a listener, each by its name. Doors have theirs beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.errors import BadValue

_DAY_S: Final = 86_400.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """What a listener puts up with; times in seconds, sizes in bytes."""

    # Connections open at once. Beyond, `connections_reserved` more are let in for HTTP alone and
    # for `reserved_s_max`, marked as reserved in their PeerInfo: a door answers health on them and
    # nothing else. Beyond those, a connection is closed as soon as it is accepted.
    connections_max: int = 10_000
    connections_reserved: int = 16
    reserved_s_max: float = 5.0
    # From one address, a Unix socket's clients not counted; reserved ones neither.
    connections_per_address_max: int = 2_500
    # From the first byte it may send to the last that it takes to tell its language.
    sniff_timeout_s: float = 5.0
    tls_handshake_timeout_s: float = 5.0
    tls_shutdown_timeout_s: float = 2.0
    # Nothing read, and nothing under way.
    idle_timeout_s: float = 3_600.0
    # What a client may leave unread, and for how long it may take none of it.
    write_backlog_bytes_max: int = 4 * 1024 * 1024
    write_stall_s_max: float = 30.0
    # How often connections are looked at for the bounds above.
    look_s: float = 0.5
    # Connections waiting to be accepted; accepted in one turn of the loop; the pause when the
    # machine has no more sockets to give.
    backlog: int = 1_024
    accepts_per_turn: int = 64
    accept_pause_s: float = 0.25
    # Several processes on one port.
    reuse_port: bool = False
    unix_mode: int = 0o660

    def __post_init__(self) -> None:
        for name, least, most in _COUNTS:
            _within(name, getattr(self, name), least, most)
        for name, shortest in _TIMES:
            _within(name, getattr(self, name), shortest, _DAY_S)


_COUNTS: Final = (
    ("connections_max", 1, 1_000_000),
    ("connections_reserved", 0, 10_000),
    ("connections_per_address_max", 1, 1_000_000),
    ("write_backlog_bytes_max", 64 * 1024, 2**31),
    ("backlog", 1, 65_535),
    ("accepts_per_turn", 1, 10_000),
    ("unix_mode", 0, 0o777),
)
_TIMES: Final = (
    ("reserved_s_max", 0.01),
    ("sniff_timeout_s", 0.01),
    ("tls_handshake_timeout_s", 0.01),
    ("tls_shutdown_timeout_s", 0.01),
    ("idle_timeout_s", 0.01),
    ("write_stall_s_max", 0.01),
    ("look_s", 0.01),
    ("accept_pause_s", 0.01),
)


def _within(name: str, value: float, least: float, most: float) -> None:
    if isinstance(value, bool) or not least <= value <= most:
        raise BadValue(f"listener.{name}", value, f"give a number from {least:,} to {most:,}")
