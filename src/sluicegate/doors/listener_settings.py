"""Bounds: all that limits a listener, each by its name. Doors have theirs beside them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias, final

from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges

Network: TypeAlias = IPv4Network | IPv6Network

OWED_BYTES_MAX: Final = 1 << 40
_DAY_S: Final = 86_400.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """What a listener puts up with; times in seconds, sizes in bytes."""

    # Connections open at once. Beyond, `connections_reserved` more are let in for HTTP alone and
    # for `reserved_s_max`, marked as reserved in their PeerInfo: a door answers health on them and
    # nothing else. Beyond those, a connection is closed as soon as it is accepted.
    connections_max: int = ranged(10_000, 1, 1_000_000)
    connections_reserved: int = ranged(16, 0, 10_000)
    reserved_s_max: float = ranged(5.0, 0.01, _DAY_S)
    # From one address, or one IPv6 network of 64 bits; a Unix socket's clients not counted;
    # reserved ones neither.
    connections_per_address_max: int = ranged(2_500, 1, 1_000_000)
    # Who connects from here says first, by the PROXY protocol, for whom: that is whose connection
    # it is. Nobody else is believed.
    proxies: tuple[Network, ...] = ()
    # Whose connections are those of many clients, and count for no address.
    trusted_proxies: tuple[Network, ...] = ()
    # From the first byte it may send to the last that it takes to tell its language.
    sniff_timeout_s: float = ranged(5.0, 0.01, _DAY_S)
    tls_handshake_timeout_s: float = ranged(5.0, 0.01, _DAY_S)
    tls_shutdown_timeout_s: float = ranged(2.0, 0.01, _DAY_S)
    # Nothing read, and nothing under way.
    idle_timeout_s: float = ranged(3_600.0, 0.01, _DAY_S)
    # Bytes that a client may leave unread, besides one reply, and how long it may read nothing.
    write_backlog_bytes_max: int = ranged(4 * 1024 * 1024, 64 * 1024, 2**31)
    write_stall_s_max: float = ranged(30.0, 0.01, _DAY_S)
    # Of all connections together: replies that are not sent, and input that is not worked on.
    # Beyond, those that hold the most are ended.
    owed_bytes_max: int = ranged(1 << 30, 1 << 20, OWED_BYTES_MAX)
    # How often connections are looked at for the bounds above.
    look_s: float = ranged(0.5, 0.01, _DAY_S)
    # Connections waiting to be accepted; accepted in one turn of the loop; the pause when the
    # machine has no more sockets to give.
    backlog: int = ranged(1_024, 1, 65_535)
    accepts_per_turn: int = ranged(64, 1, 10_000)
    accept_pause_s: float = ranged(0.25, 0.01, _DAY_S)
    # Several processes on one port.
    reuse_port: bool = False
    unix_mode: int = ranged(0o660, 0, 0o777)

    def __post_init__(self) -> None:
        check_ranges("listener", self)
