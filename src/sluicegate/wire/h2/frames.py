"""Frames: the numbers of RFC 9113, the small frames that we send, and the two kinds of fault.

A fault of the connection ends it with GOAWAY, a fault of a stream ends that stream alone. Both
carry the error code that is sent to the peer.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
FRAME_BYTES_MAX: Final = 16_384  # ours, and the least that any peer must take
WINDOW_MAX: Final = (1 << 31) - 1
WINDOW_FIRST: Final = 65_535
STREAM_ID_MAX: Final = (1 << 31) - 1

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WEIGHTED: Final = 0x20  # the PRIORITY flag of HEADERS

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
SETTINGS_TIMEOUT: Final = 4
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

SETTING_BYTES: Final = 6
SETTINGS_ACK: Final = b"\0\0\0\x04\x01\0\0\0\0"
_HEAD: Final = Struct(">HBBBI")
_WORD: Final = Struct(">HBBBII")
_GOAWAY: Final = Struct(">HBBBIII")
_SETTING: Final = Struct(">HI")


@final
class ConnectionFault(Exception):  # noqa: N818 - it names the thing, not the class
    """What the peer did to the connection; nothing after it can be believed.

    `flood` names the bound that was passed, where it was one.
    """

    def __init__(self, code: int, why: str, flood: str = "") -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.flood = flood


@final
class StreamFault(Exception):  # noqa: N818 - likewise
    """What the peer did to one stream."""

    def __init__(self, stream_id: int, code: int, why: str) -> None:
        super().__init__(why)
        self.stream_id = stream_id
        self.code = code


def frame_head(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a payload of `size`."""
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id)


def settings_frame(settings: list[tuple[int, int]]) -> bytes:
    """Our SETTINGS."""
    payload = b"".join([_SETTING.pack(key, value) for key, value in settings])
    return frame_head(len(payload), SETTINGS, 0, 0) + payload


def rst_stream(stream_id: int, code: int) -> bytes:
    """The end of one stream."""
    return _WORD.pack(0, 4, RST_STREAM, 0, stream_id, code)


def window_update(stream_id: int, more: int) -> bytes:
    """So many bytes more may come; stream 0 is the connection."""
    return _WORD.pack(0, 4, WINDOW_UPDATE, 0, stream_id, more)


def goaway(last_id: int, code: int, why: str) -> bytes:
    """No stream after `last_id` was or will be answered."""
    data = why.encode()
    size = 8 + len(data)
    return _GOAWAY.pack(size >> 8, size & 0xFF, GOAWAY, 0, 0, last_id, code) + data


def ping_frame(data: bytes, *, ack: bool) -> bytes:
    """A PING with these eight bytes, or the answer to one."""
    return frame_head(8, PING, ACK if ack else 0, 0) + data


def word(data: bytes, at: int) -> int:
    """Four bytes as a number."""
    return (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
