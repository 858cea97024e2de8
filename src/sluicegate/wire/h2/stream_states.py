"""Stream states: what a frame means on a stream, by where that stream is. RFC 9113, section 5.1.

The table is all there is about what is legal: a connection finds the state and acts on the verdict.
A stream's life is a walk through it:

    IDLE ──HEADERS──► OPEN ──END_STREAM──► HALF_CLOSED ──our END_STREAM──► CLOSED
      │                └──────────── RST_STREAM of ours ─────────────────► RESET
      ├── a higher number is opened ──► SKIPPED
      └── our last GOAWAY ──► REFUSED

RESET and REFUSED are ours: the peer may not know yet, so what it has sent is late and no fault.
CLOSED is known to both. PRIORITY is legal anywhere, so it has no column.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from sluicegate.wire.h2 import frames
from sluicegate.wire.h2.frames import ConnectionFault, StreamFault


class StreamState(Enum):
    """Where a stream is, as the peer's frames find it."""

    IDLE = "idle"
    OPEN = "open"
    HALF_CLOSED = "half-closed"  # by the peer: it has sent all
    RESET = "reset"
    CLOSED = "closed"
    SKIPPED = "skipped"
    REFUSED = "refused"


class FrameVerdict(Enum):
    """What a frame does there."""

    BEGIN = "begins the stream"
    ACCEPT = "is a part of it"
    LATE = "is late, and ignored"
    STREAM_CLOSED = "ends the stream with STREAM_CLOSED"
    CONNECTION_CLOSED = "ends the connection with STREAM_CLOSED"
    PROTOCOL_ERROR = "ends the connection with PROTOCOL_ERROR"


_BEGIN, _ACCEPT, _LATE = FrameVerdict.BEGIN, FrameVerdict.ACCEPT, FrameVerdict.LATE
_STREAM, _CLOSED, _ERROR = (
    FrameVerdict.STREAM_CLOSED,
    FrameVerdict.CONNECTION_CLOSED,
    FrameVerdict.PROTOCOL_ERROR,
)
_COLUMNS: Final = (frames.HEADERS, frames.DATA, frames.RST_STREAM, frames.WINDOW_UPDATE)
_NAMES: Final = {
    frames.HEADERS: "HEADERS",
    frames.DATA: "DATA",
    frames.RST_STREAM: "RST_STREAM",
    frames.WINDOW_UPDATE: "WINDOW_UPDATE",
}
#                            HEADERS  DATA     RST      WINDOW_UPDATE
_ROWS: Final = {
    StreamState.IDLE:        (_BEGIN,  _ERROR,  _ERROR,  _ERROR),
    StreamState.OPEN:        (_ACCEPT, _ACCEPT, _ACCEPT, _ACCEPT),
    StreamState.HALF_CLOSED: (_STREAM, _STREAM, _ACCEPT, _ACCEPT),
    StreamState.RESET:       (_LATE,   _LATE,   _LATE,   _LATE),
    StreamState.CLOSED:      (_CLOSED, _STREAM, _LATE,   _LATE),
    StreamState.SKIPPED:     (_ERROR,  _STREAM, _LATE,   _LATE),
    StreamState.REFUSED:     (_LATE,   _LATE,   _LATE,   _LATE),
}  # fmt: skip
TABLE: Final = {
    (state, kind): verdict
    for state, row in _ROWS.items()
    for kind, verdict in zip(_COLUMNS, row, strict=True)
}


def fault_of(
    verdict: FrameVerdict, state: StreamState, kind: int, stream_id: int
) -> ConnectionFault | StreamFault:
    """Return the fault that a verdict stands for, where the frame is none of the stream's."""
    why = f"{_NAMES[kind]} on a stream that is {state.value}"
    if verdict is FrameVerdict.STREAM_CLOSED:
        return StreamFault(stream_id, frames.STREAM_CLOSED, why)
    code = (
        frames.STREAM_CLOSED if verdict is FrameVerdict.CONNECTION_CLOSED else frames.PROTOCOL_ERROR
    )
    return ConnectionFault(code, why)
