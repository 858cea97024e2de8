"""A peer that says what it is told to, and an application that writes down what it hears.

Frames are spelled here by hand, so that they can be wrong; headers by the kept `hpack` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hpack import Encoder

from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.blocks import block
from sluicegate.wire.h2.connection import H2Connection
from sluicegate.wire.h2.fields import RequestHead
from sluicegate.wire.h2.settings import H2Settings
from sluicegate.wire.h2.stream import H2Stream

NOW: Final = 1_000_000_000
REQUEST: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a"),
    (":authority", "here"),
)
OK_200: Final = block([(b":status", b"200")])
END: Final = block([(b"grpc-status", b"0")])


class Frame(NamedTuple):
    """A frame as it was sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of RST_STREAM and GOAWAY."""
        return int.from_bytes(self.payload[4:8] or self.payload, "big")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of any kind, right or wrong."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def parsed(sent: bytes) -> list[Frame]:
    """What a server sent, frame by frame."""
    frames = []
    while sent:
        size = int.from_bytes(sent[:3], "big")
        stream = int.from_bytes(sent[5:9], "big")
        frames.append(Frame(sent[3], sent[4], stream, sent[9 : 9 + size]))
        sent = sent[9 + size :]
    return frames


def headers(fields: Sequence[tuple[str, str]] = REQUEST) -> bytes:
    """A block that any connection understands at any time, and that leaves no trace in it."""
    never_kept = [(name, value, True) for name, value in fields]
    return Encoder().encode(never_kept, huffman=False)


def request(stream: int, *more: tuple[str, str], ends: bool = True) -> bytes:
    """HEADERS of a well-formed request."""
    flags = f.END_HEADERS | (f.END_STREAM if ends else 0)
    return frame(f.HEADERS, flags, stream, headers((*REQUEST, *more)))


def setting(key: int, value: int) -> bytes:
    return key.to_bytes(2, "big") + value.to_bytes(4, "big")


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(f.SETTINGS, 0, 0, b"".join([setting(*pair) for pair in pairs]))


def update(stream: int, more: int) -> bytes:
    return frame(f.WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


GREETING: Final = f.PREFACE + settings()


class Written:
    """An application: keeps all it is told, and answers what has come whole if it is to."""

    def __init__(self, *, answers: bool = True, body: bytes = b"hello") -> None:
        self.answers = answers
        self.body = body
        self.h2: H2Connection | None = None
        self.heads: list[RequestHead] = []
        self.bodies: dict[int, bytes] = {}
        self.whole: list[int] = []
        self.meanings: dict[int, object] = {}
        self.ended: list[int] = []
        self.flowed: list[int] = []
        self.streams: dict[int, H2Stream] = {}

    def interpret(self, head: RequestHead) -> object:
        self.heads.append(head)
        return head

    def interpret_oversized(self) -> object:
        return "too large"

    def begin_stream(self, stream: H2Stream) -> None:
        self.streams[stream.id] = stream
        self.meanings[stream.id] = stream.meaning
        self.bodies[stream.id] = b""

    def receive_data(self, stream: H2Stream, data: bytes, start: int, end: int, last: bool) -> None:
        if stream.id not in self.streams:
            self.begin_stream(stream)
        self.bodies[stream.id] += data[start:end]
        if last:
            self.whole.append(stream.id)
            if self.answers:
                assert self.h2 is not None
                self.h2.reply(stream, OK_200, self.body, END)

    def drop_stream(self, stream: H2Stream) -> None:
        self.ended.append(stream.id)

    def resume_stream(self, stream: H2Stream) -> None:
        self.flowed.append(stream.id)


class Peer:
    """A connection and the hand that drives it."""

    def __init__(
        self,
        settings: H2Settings | None = None,
        *,
        answers: bool = True,
        body: bytes = b"hello",
        greets: bool = True,
    ) -> None:
        self.now_us = NOW
        self.owner = Written(answers=answers, body=body)
        self.h2 = H2Connection(H2Settings() if settings is None else settings, self.owner, NOW)
        self.owner.h2 = self.h2
        self.sent: list[Frame] = []
        if greets:
            self.say(GREETING)
            self.sent.clear()

    def say(self, *what: bytes) -> list[Frame]:
        """Send it; what came back, which also collects in `sent`."""
        self.h2.receive(b"".join(what), self.now_us)
        while self.h2.waiting:
            self.h2.read_on(self.now_us)
        return self.take()

    def take(self) -> list[Frame]:
        back = parsed(self.h2.take())
        self.sent += back
        return back

    def of(self, kind: int, stream: int | None = None) -> list[Frame]:
        """What came back of one kind."""
        return [x for x in self.sent if x.kind == kind and stream in {None, x.stream}]

    @property
    def verdict(self) -> str:
        """How it ended: `connection 1`, `stream 3 5`, or `fine`."""
        for each in self.sent:
            if each.kind == f.GOAWAY:
                return f"connection {each.code}"
        resets = [x for x in self.of(f.RST_STREAM) if x.code]
        if resets:
            return f"stream {resets[0].stream} {resets[0].code}"
        return "fine"
