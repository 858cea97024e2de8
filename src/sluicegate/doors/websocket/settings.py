"""Bounds: all that limits a WebSocket connection, each by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketSettings:
    """What one connection may send, how fast, and how long it may take; times in seconds."""

    message_bytes_max: int = ranged(64 * 1024, 125, 2**30)  # all its fragments together
    message_timeout_s: float = ranged(30.0, 0.01, 3_600)  # from its first byte to its last
    # Read in a second, control frames too. Beyond, the connection is read later, and loses nothing.
    frames_per_s: int = ranged(1_000, 1, 1_000_000)
    bytes_per_s: int = ranged(1 << 20, 1_024, 2**30)
    # Requests in flight. Beyond, the connection is read later. Messages of other connections queue
    # behind these requests.
    under_way_max: int = ranged(64, 1, 1_000_000)
    # Bytes of one reply, or of the messages in one write. A longer one ends the connection.
    reply_bytes_max: int = ranged(4 << 20, 1_024, 2**30)
    # Written and not taken by the client. Beyond, its session is asked for nothing more.
    unread_bytes_max: int = ranged(64 * 1024, 1_024, 2**30)
    heartbeat_s: float = ranged(15.0, 0.01, 3_600)  # a client that is silent so long is pinged
    silence_s_max: float = ranged(60.0, 0.01, 86_400)  # and one that is silent so long is dead
    linger_s: float = ranged(1.0, 0.01, 60)  # for a client to take the last frame
    # Portions of work: see `HttpSettings`.
    connection_portions_max: int = ranged(16, 1, 100_000)
    turn_portions_max: int = ranged(32, 1, 100_000)
    turn_us_max: int = ranged(1_000, 1, 1_000_000)

    def __post_init__(self) -> None:
        check_ranges("websocket", self)
