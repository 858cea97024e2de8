"""What the gRPC door bounds by itself, on top of what HTTP/2 bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.h2.settings import H2Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """Bounds of messages and calls; `h2` has those of connections."""

    h2: H2Settings = field(default_factory=H2Settings)
    message_bytes_max: int = 4 << 20  # of a request, also unpacked
    gunzip_ratio_max: int = 100  # a packed message may hold so many times its size, as in Envoy,
    gunzip_free_bytes: int = 16_384  # or so much whatever its size
    open_message_bytes_max: int = 1_024  # to a method that anybody may call, as health
    open_streams_max: int = 64  # of such calls that have begun and not ended, a connection
    partial_bytes_max: int = 16 << 20  # of requests that wait to come whole or to be answered
    reply_bytes_max: int = 32 << 20  # of one message; a longer one is an error
    backlog_bytes_max: int = 256 << 20  # of responses that no peer has taken, all connections
    # Portions of work in a turn of the loop (`h2` bounds a portion): of one connection, then of all
    # connections, and the time of a turn. The rest waits for the next turn. One connection has 64
    # calls: about as many as redis-server takes from one read of a client.
    connection_portions_max: int = 4
    turn_portions_max: int = 64
    turn_us_max: int = 1_000
    call_us_max: int = 60_000_000  # for a unary call that names no deadline, or a later one
    watchers_max: int = 1_000  # health watches, a process
    watch_us: int = 500_000  # at most so long after a change a watcher hears of it
    drain_echo_us: int = 1_000_000  # how long a drain waits for the peer's echo
    linger_us: int = 1_000_000  # how long a peer has to read our last bytes and close
    sweep_us: int = 1_000_000  # how often slow and idle connections are looked for

    def __post_init__(self) -> None:
        for name, least, most in (
            ("message_bytes_max", 1_024, 1 << 30),
            ("gunzip_ratio_max", 1, 1_032),  # which is the most that gzip can do
            ("gunzip_free_bytes", 0, 1 << 30),
            ("open_message_bytes_max", 64, 1 << 20),
            ("open_streams_max", 1, 1 << 20),
            ("partial_bytes_max", 1_024, 1 << 32),
            ("reply_bytes_max", 1_024, 1 << 30),
            ("backlog_bytes_max", 1 << 20, 1 << 40),
            ("connection_portions_max", 1, 100_000),
            ("turn_portions_max", 1, 100_000),
            ("turn_us_max", 1, 1_000_000),
            ("call_us_max", 1_000, 86_400_000_000),
            ("watchers_max", 1, 1 << 20),
            ("watch_us", 1_000, 60_000_000),
            ("drain_echo_us", 1_000, 60_000_000),
            ("linger_us", 1_000, 60_000_000),
            ("sweep_us", 10_000, 60_000_000),
        ):
            value = int(getattr(self, name))
            if not least <= value <= most:
                raise BadValue(f"grpc.{name}", value, f"give a number from {least:,} to {most:,}")
