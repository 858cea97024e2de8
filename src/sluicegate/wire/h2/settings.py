"""What one HTTP/2 connection may hold and do: every bound, by name.

A flood is traffic that costs us more than its sender, and carries nothing. Each kind is counted by
the second, and each but the resets starts anew with an answered call: clients that measure the
bandwidth send a PING with nearly every message, and one that works for its answers is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.h2.frames import WINDOW_FIRST, WINDOW_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class H2Settings:
    """The bounds of a connection; what the peer must know is in our SETTINGS."""

    streams_max: int = 1_024  # open at a time; more are refused, and may be tried again
    # Decoded, 32 a field on top. A proxy that traces passes its client's `tracestate` on with its
    # own question, and Envoy takes 60 KiB of headers: a question that is refused is not decided.
    header_list_bytes_max: int = 65_536
    header_block_bytes_max: int = 65_536  # as sent, over all its frames
    continuations_max: int = 16  # frames after the first, a header block
    stream_window_bytes: int = 262_144  # what may come before we have taken it
    connection_window_bytes: int = 1_048_576
    backlog_bytes_max: int = 16 << 20  # of responses that the peer has not taken, whatever why
    portion_frames_max: int = 32  # that are read at a time; others have their turn in between
    portion_bytes_max: int = 8_192  # read, unpacked and answered at a time, likewise
    header_bytes_per_s_max: int = 1 << 20  # of blocks decoded; beyond it, one portion a turn
    rapid_reset_us: int = 10_000  # a stream that is withdrawn younger than this counts as a flood
    resets_per_s_max: int = 500
    settings_per_s_max: int = 50
    settings_entries_max: int = 32  # in one frame
    pings_per_s_max: int = 500
    empty_frames_per_s_max: int = 1_000  # that carry nothing, or nothing for any open stream
    window_updates_per_s_max: int = 20_000
    memo_entries_max: int = 256  # header blocks whose meaning is remembered
    memo_us_max: int = 1_000_000  # so long a withdrawn token may still be believed
    handshake_us_max: int = 10_000_000  # until the preface and first SETTINGS are there
    request_us_max: int = 30_000_000  # until a request is whole
    idle_us_max: int = 3_600_000_000  # without a stream or a byte

    def __post_init__(self) -> None:
        for field, least, most in (
            ("streams_max", 1, 1 << 20),
            ("header_list_bytes_max", 1_024, 1 << 20),
            ("header_block_bytes_max", 1_024, 1 << 20),
            ("continuations_max", 1, 1_024),
            # The peer may send this much before it has seen our SETTINGS.
            ("stream_window_bytes", WINDOW_FIRST, WINDOW_MAX),
            ("connection_window_bytes", WINDOW_FIRST, WINDOW_MAX),
            ("backlog_bytes_max", 65_536, 1 << 30),
            ("portion_frames_max", 1, 1 << 20),
            ("portion_bytes_max", 1_024, 1 << 30),
            ("header_bytes_per_s_max", 1_024, 1 << 30),
            ("rapid_reset_us", 0, 60_000_000),
            ("resets_per_s_max", 1, 1 << 20),
            ("settings_per_s_max", 1, 1 << 20),
            ("settings_entries_max", 6, 1 << 10),  # as many as RFC 9113 knows
            ("pings_per_s_max", 1, 1 << 20),
            ("empty_frames_per_s_max", 1, 1 << 20),
            ("window_updates_per_s_max", 1, 1 << 20),
            ("memo_entries_max", 0, 1 << 16),
            ("memo_us_max", 0, 3_600_000_000),
            ("handshake_us_max", 1_000, 3_600_000_000),
            ("request_us_max", 1_000, 3_600_000_000),
            ("idle_us_max", 1_000_000, 1 << 50),
        ):
            value = int(getattr(self, field))
            if not least <= value <= most:
                raise BadValue(f"h2.{field}", value, f"give a number from {least:,} to {most:,}")
