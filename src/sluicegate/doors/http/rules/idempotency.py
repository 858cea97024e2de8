"""Repeats: a call that is sent again under its Idempotency-Key is answered again, not done again.

Keys belong to their caller. What did something is remembered for a while, in memory; what was
refused or failed did nothing, and is done when it comes again. A call that comes again while its
first is still under way waits for that one's answer.

Bound: keys of all callers, keys of one, and bytes of the answers; the oldest go first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.rules.settings import RulesHttpSettings

IDEMPOTENCY_KEY: Final = b"idempotency-key"
KEY_CHARS_MAX: Final = 255

CallerKey: TypeAlias = "tuple[str, str]"


class IdempotentCall(NamedTuple):
    """A call that is under way, or that is done and has an answer to be given again."""

    digest: str  # the digest of what was asked
    reply: asyncio.Future[HttpReply]


def key_of(request: HttpRequest) -> str:
    """The key of a call; empty without one."""
    key = request.header(IDEMPOTENCY_KEY)
    if request.count(IDEMPOTENCY_KEY) > 1:
        raise BadValue("idempotency-key", "two values", "send it once")
    if not key and request.count(IDEMPOTENCY_KEY):
        raise BadValue("idempotency-key", "", "send a key that is used for this call alone")
    if len(key) > KEY_CHARS_MAX or not all(0x21 <= char <= 0x7E for char in key):
        raise BadValue(
            "idempotency-key",
            key.decode("latin-1"),
            f"send at most {KEY_CHARS_MAX} letters, digits and signs of ASCII without spaces",
        )
    return key.decode("ascii")


def digest_of(request: HttpRequest, body: bytes) -> str:
    """What is asked, as far as it must be the same the second time."""
    digest = sha256()
    for part in (request.method.encode(), request.path.encode("utf-8", "replace"), request.query):
        digest.update(b"%d:%b" % (len(part), part))
    condition = b",".join(value for name, value in request.headers if name == b"if-match")
    digest.update(b"%d:%b" % (len(condition), condition))
    digest.update(body)
    return digest.hexdigest()


@final
class IdempotencyKeys:
    """The keys of a while. Used on one loop."""

    __slots__ = ("_bytes", "_clock", "_done", "_of", "_settings", "_under_way", "replayed")

    def __init__(self, clock: Clock, settings: RulesHttpSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._under_way: dict[CallerKey, IdempotentCall] = {}  # bounded as the calls are
        self._done: OrderedDict[CallerKey, tuple[IdempotentCall, int, int]] = OrderedDict()
        self._of: dict[str, OrderedDict[CallerKey, None]] = {}
        self._bytes = 0
        self.replayed = 0

    def __len__(self) -> int:
        return len(self._done)

    def find(self, caller: str, key: str) -> IdempotentCall | None:
        """The call that has this key; None if it is new."""
        self._forget_old()
        at = (caller, key)
        call = self._under_way.get(at)
        if call is None and at in self._done:
            call = self._done[at][0]
        if call is not None:
            self.replayed += 1
        return call

    def begin(self, caller: str, key: str, digest: str, reply: asyncio.Future[HttpReply]) -> None:
        """It is under way now; once it is done it is kept if it did something."""
        at = (caller, key)
        self._under_way[at] = IdempotentCall(digest, reply)
        reply.add_done_callback(lambda _: self._end(at))

    def _end(self, at: CallerKey) -> None:
        call = self._under_way.pop(at)
        if call.reply.cancelled() or call.reply.exception() is not None:
            return
        reply = call.reply.result()
        size = len(reply.body)
        if not 200 <= reply.status < 300 or size > self._settings.keys_bytes_max:
            return
        until_us = self._clock.now_us() + self._settings.keys_kept_s * 1_000_000
        self._done[at] = (call, until_us, size)
        self._bytes += size
        of_caller = self._of.setdefault(at[0], OrderedDict())
        of_caller[at] = None
        if len(of_caller) > self._settings.keys_of_caller_max:
            self._forget(next(iter(of_caller)))
        while len(self._done) > self._settings.keys_max or self._bytes > (
            self._settings.keys_bytes_max
        ):
            self._forget(next(iter(self._done)))

    def _forget_old(self) -> None:
        now_us = self._clock.now_us()
        while self._done:
            at, (_, until_us, _) = next(iter(self._done.items()))
            if until_us > now_us:
                return
            self._forget(at)

    def _forget(self, at: CallerKey) -> None:
        _, _, size = self._done.pop(at)
        self._bytes -= size
        of_caller = self._of[at[0]]
        del of_caller[at]
        if not of_caller:
            del self._of[at[0]]
