"""Bounds: all that limits an HTTP connection, each by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.errors import BadValue


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What one connection may send, and how long it may take; times in seconds."""

    url_bytes_max: int = 8 * 1024
    head_bytes_max: int = 32 * 1024
    headers_max: int = 100
    body_bytes_max: int = 1024 * 1024
    head_timeout_s: float = 10.0  # from a request's first byte to the end of its headers
    body_timeout_s: float = 10.0
    keep_alive_s: float = 75.0  # between requests
    answer_timeout_s: float = 30.0  # for what the service owes
    linger_s: float = 1.0  # for a client to take the last answer
    # Of all connections together: requests whose body or answer is awaited. Beyond, 503 at once.
    requests_max: int = 1_000
    # Worked on before the loop looks at its sockets again; the others wait for the next turn.
    turn_requests_max: int = 32
    # Read ahead on one connection; then its reading stops.
    pipelined_max: int = 64

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not least <= value <= most:
                raise BadValue(f"http.{name}", value, f"give a number from {least:,} to {most:,}")


_RANGES: Final[tuple[tuple[str, float, float], ...]] = (
    ("url_bytes_max", 64, 65_536),
    ("head_bytes_max", 256, 1024 * 1024),
    ("headers_max", 1, 10_000),
    ("body_bytes_max", 0, 2**30),
    ("head_timeout_s", 0.01, 3_600),
    ("body_timeout_s", 0.01, 3_600),
    ("keep_alive_s", 0.01, 86_400),
    ("answer_timeout_s", 0.01, 3_600),
    ("linger_s", 0.01, 60),
    ("requests_max", 1, 1_000_000),
    ("turn_requests_max", 1, 100_000),
    ("pipelined_max", 1, 100_000),
)
