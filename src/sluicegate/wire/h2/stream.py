"""Stream: one request and its answer, as the connection counts them."""

from __future__ import annotations

from collections import deque
from typing import final

from sluicegate.wire.h2.blocks import Block


@final
class Stream:
    """Open from its HEADERS until both sides have ended.

    `meaning` is what the application made of its head, `call` whatever the application keeps with
    it. `room` is what the peer may still send, `held` what has come and was not yet taken, `window`
    what we may still send.
    """

    __slots__ = (
        "answered",
        "began_us",
        "call",
        "content_length",
        "ended_by_peer",
        "gone",
        "held",
        "id",
        "last_is_data",
        "meaning",
        "queue",
        "queued_bytes",
        "received_bytes",
        "room",
        "tail",
        "taking",
        "window",
    )

    def __init__(
        self, stream_id: int, meaning: object, window: int, room: int, now_us: int
    ) -> None:
        self.id = stream_id
        self.meaning = meaning
        self.began_us = now_us
        self.window = window
        self.room = room
        self.held = 0
        self.taking = True  # what comes is taken at once; else the application says `taken`
        self.content_length = -1
        self.received_bytes = 0
        self.ended_by_peer = False
        self.answered = False  # nothing more will be said; what is queued still leaves
        self.gone = False
        self.call: object = None
        self.queue: deque[bytes] | None = None
        self.queued_bytes = 0
        self.tail: Block | None = None
        self.last_is_data = False
