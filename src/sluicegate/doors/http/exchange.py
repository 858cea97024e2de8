"""Exchange: one request and its reply, as they stand in the line of their connection."""

from __future__ import annotations

import asyncio
from typing import final

from sluicegate.doors.http.message import Finish, HttpReply, HttpRequest


@final
class HttpExchange:
    """One request, from the end of its head to the end of its reply."""

    __slots__ = (
        "begun",
        "body",
        "counted",
        "expects",
        "finish",
        "held_bytes",
        "keep_alive",
        "reply",
        "request",
        "rest",
        "size",
        "task",
        "whole",
        "written",
    )

    def __init__(
        self, request: HttpRequest | None, reply: HttpReply | None, keep_alive: bool
    ) -> None:
        self.request = request  # None is what could not be read so far
        self.reply = reply  # once it is known
        self.keep_alive = keep_alive
        self.expects = False  # waits for leave to send its body
        self.begun = reply is not None
        self.counted = False  # among those under way
        self.whole = request is None  # the body has come
        self.written = False
        self.body = bytearray()
        self.size = 0
        self.held_bytes = 0  # of its body, until there is a reply
        self.rest = 0  # of a body whose length was said
        self.finish: Finish | None = None
        self.task: asyncio.Task[None] | None = None
