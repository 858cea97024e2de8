"""Stream: one request and its answer, as the connection counts them."""

from __future__ import annotations

from collections import deque
from typing import final

from sluicegate.wire.h2.blocks import HeaderBlock


@final
class H2Stream:
    """Open from its HEADERS until both sides have ended.

    `meaning` is what the application made of its head, `call` whatever the application keeps with
    it. `room` is what the peer may still send, `held` what has come and was not yet taken, `window`
    what we may still send.
    """

    __slots__ = (
        "began_us",
        "call",
        "closed",
        "consumes",
        "content_length",
        "counted",
        "ended_by_peer",
        "finished",
        "id",
        "last_is_data",
        "meaning",
        "moved_us",
        "pending",
        "queue",
        "queue_at",
        "queued_bytes",
        "receive_window",
        "received_bytes",
        "trailers",
        "unread_bytes",
        "window",
    )

    def __init__(
        self, stream_id: int, meaning: object, window: int, room: int, now_us: int
    ) -> None:
        self.id = stream_id
        self.meaning = meaning
        self.began_us = now_us
        self.moved_us = now_us  # when anything of what is queued last left
        self.window = window
        self.receive_window = room
        self.unread_bytes = 0
        self.consumes = True  # what comes is consumed at once, not by `consume`
        self.content_length = -1
        self.received_bytes = 0
        self.ended_by_peer = False
        self.finished = False  # nothing more will be sent; what is queued still leaves
        self.closed = False
        self.counted = False
        self.pending = False
        self.call: object = None
        self.queue: deque[bytes] | None = None
        self.queue_at = 0  # of its first piece, so much has left
        self.queued_bytes = 0
        self.trailers: HeaderBlock | None = None
        self.last_is_data = False
