"""Bounds: all that limits an HTTP connection, each by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sluicegate.doors.listener_settings import Network
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What one connection may send, and how long it may take; times in seconds."""

    url_bytes_max: int = ranged(8 * 1024, 64, 65_536)
    head_bytes_max: int = ranged(32 * 1024, 256, 1024 * 1024)
    headers_max: int = ranged(100, 1, 10_000)
    body_bytes_max: int = ranged(1024 * 1024, 0, 2**30)
    # Of all connections together: bytes of bodies that came, until there is a reply. Beyond, 503.
    bodies_bytes_max: int = ranged(2**30, 1024, 2**40)
    # From a request's first byte to the end of its headers.
    head_timeout_s: float = ranged(10.0, 0.01, 3_600)
    body_timeout_s: float = ranged(10.0, 0.01, 3_600)
    keep_alive_s: float = ranged(75.0, 0.01, 86_400)  # between requests
    answer_timeout_s: float = ranged(30.0, 0.01, 3_600)  # for what the service owes
    linger_s: float = ranged(1.0, 0.01, 60)  # for a client to take the last answer
    # Of all connections together: requests whose body or answer is awaited. Beyond, 503 at once.
    requests_max: int = ranged(1_000, 1, 1_000_000)
    # Of all connections together: replies that go on, piece by piece. Beyond, 503 at once.
    streams_max: int = ranged(1_000, 0, 1_000_000)
    # Of one piece of such a reply. A longer one ends the reply, and is logged.
    piece_bytes_max: int = ranged(16 * 1024 * 1024, 1_024, 2**30)
    # The protocol that a request may ask to switch to (Upgrade); none is stayed away from.
    switch_offer: bytes = b""
    # Where proxies are whose headers tell client, scheme and host (`forwarded.py`).
    trusted_proxies: tuple[Network, ...] = ()
    # Portions of work, each a request that is worked on or a KiB that is parsed: of one connection
    # in a turn of the loop, then of all together, in so much time. The rest waits for the next.
    connection_portions_max: int = ranged(16, 1, 100_000)
    turn_portions_max: int = ranged(32, 1, 100_000)
    turn_us_max: int = ranged(1_000, 1, 1_000_000)
    # Read ahead on one connection; then its reading stops.
    pipelined_max: int = ranged(64, 1, 100_000)

    def __post_init__(self) -> None:
        check_ranges("http", self)
