"""Protocol: HTTP/1.1 on one connection, around httptools' parser. It knows no route.

A request that can be answered at once is answered before `data_received` returns, without a task:
so a health check waits for no queue, only for the loop's turn. Requests of one connection are
answered one after the other, in their order, however they were cut or pipelined; each is parsed and
worked on in portions, and what a turn of the loop has no room for waits (`doors/turns.py`).

A request that is refused while its body is still coming is answered at once; the rest is thrown
away within the same bounds, or the connection is ended, so that a client in the middle of its
sending learns why. A reply that goes on piece by piece has the connection for itself, for as long
as the client reads. Time-outs are found by `tick`, which the listener calls every now and then; no
request pays for a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, cast, final

import httptools

from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.connection import AcceptedConnection, PeerInfo
from sluicegate.doors.connection_pace import ConnectionPace
from sluicegate.doors.http.cors import Cors
from sluicegate.doors.http.exchange import HttpExchange
from sluicegate.doors.http.forwarded import TrustedProxies
from sluicegate.doors.http.head import HttpHead
from sluicegate.doors.http.message import (
    EVENTS,
    PROBLEM,
    ErrorPage,
    Handler,
    HttpReply,
    HttpRequest,
)
from sluicegate.doors.http.replies import (
    ACCESS_ENDED,
    ANSWER_TOO_SLOW,
    BAD_REQUEST,
    BODY_TOO_LARGE,
    BODY_TOO_SLOW,
    HEAD_TOO_LARGE,
    HEAD_TOO_SLOW,
    NO_BODY,
    NO_EXPECTATION,
    OUR_FAULT,
    TOO_MANY,
    head_of,
    last_event,
)
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.turns import NEW_READS_MAX, STRANGER, Turns, TurnShare, class_of
from sluicegate.policies.quota.refusal_pace import RefusalPace

_log: Final = logging.getLogger("sluicegate.http")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
SLOWED_MS: Final = b"x-sluicegate-slowed-ms"  # how much later this connection is read
_NEVER: Final = float("inf")
_TURN_BYTES: Final = 64 * 1024  # of bodies, gathered for one write
_PORTION_BYTES: Final = 1_024  # parsed at once; a body of a length that is known counts for nothing

# What a connection waits for; each has its own time-out.
_REST: Final = 0
_HEAD: Final = 1
_BODY: Final = 2
_ANSWER: Final = 3


@final
class HttpDoor:
    """Makes the protocol of each connection, and holds what they share. Call it with a peer."""

    def __init__(
        self,
        handler: Handler,
        clock: Clock,
        settings: HttpSettings | None = None,
        pace: RefusalPace | None = None,
        error_page: ErrorPage | None = None,
        cors: Cors | None = None,
    ) -> None:
        self.handler = handler
        self.error_page = error_page
        self.cors = cors
        self.pace = pace  # of callers far over their quota
        self.settings = HttpSettings() if settings is None else settings
        self.requests = 0
        self.under_way = 0
        self.body_bytes = 0
        self.streams = 0
        self.overloaded = 0
        self.bad_requests = 0
        self.faults = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.clock = clock
        self._date_s = -1
        self._date = b""
        self.turns = Turns(clock, self.settings.turn_portions_max, self.settings.turn_us_max)
        self.leaving = False  # each connection ends with its next reply that no request follows
        networks = self.settings.trusted_proxies
        self.proxies = TrustedProxies(networks) if networks else None

    def __call__(self, peer: PeerInfo) -> asyncio.Protocol:
        """A protocol for one connection."""
        return cast("asyncio.Protocol", HttpProtocol(self, peer))

    def switches(self, request: HttpRequest) -> bool:
        """Whether a request offers the protocol that a service of ours may switch to."""
        offer = self.settings.switch_offer
        return (
            bool(offer) and request.method == "GET" and request.header(b"upgrade").lower() == offer
        )

    def end_stream(self) -> None:
        """A reply that went on, or what took over its connection, has ended."""
        self.streams -= 1

    def date(self) -> bytes:
        """The Date field, made once a second."""
        now_s = self.clock.now_us() // 1_000_000
        if now_s != self._date_s:
            self._date_s = now_s
            self._date = f"date: {formatdate(now_s, usegmt=True)}\r\n".encode()
        return self._date


@final
class HttpProtocol:
    """One connection on a loop.

    It does what `asyncio.Protocol` asks for; a compiled class has none but compiled ancestors.
    """

    def __init__(self, door: HttpDoor, peer: PeerInfo) -> None:
        self._door = door
        self._settings = door.settings
        self._peer = peer
        self._parser: Any = None
        self._transport: asyncio.Transport | None = None
        self._exchanges: deque[HttpExchange] = deque()  # the first is being answered
        self._receiving: HttpExchange | None = None  # the one whose body is being read
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._head = HttpHead(door.settings)
        self._body_bytes = 0  # of all bodies so far
        self._offered = False  # a protocol to switch to, and the answer is not known yet
        self._after_switch = b""  # what follows a request that offered another protocol
        self._untold_bytes = (
            0  # of what it keeps to itself: the beginning of a header, an extension
        )
        self._unparsed = b""  # what was read
        self._parsed_to = 0
        self._share = TurnShare(door.turns, door.settings.connection_portions_max, self._work)
        self._class = STRANGER  # of who was last identified on this connection
        self._caller = ""
        self._reads = 0
        self._ready_us = 0  # since when what is to be done waits for others alone
        self._rests = False  # put off, as its callers are far over their quota
        self._pace: ConnectionPace | None = None
        if door.pace is not None:
            self._pace = ConnectionPace(door.pace, door.clock)
        self._working = False  # further down in the stack
        self._blocked = False  # the client does not read
        self._paused = False  # we do not read
        self._draining = False
        self._half_closed = False
        self._stream: asyncio.Task[None] | None = None  # sends a reply piece by piece
        self._stream_of: Identity | None = None
        self._stream_is_events = False
        self._readable: asyncio.Event | None = None  # that task waits for the client to read
        self._discarding = False  # what comes is not understood any more, or thrown away
        self._finished = False  # the last answer is written
        self._progress = 0  # grows with whatever happens
        self._last_progress = (-1, _REST)
        self._since_s = 0.0
        self._abort_at_s = _NEVER

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Parse it, and answer what can be answered."""
        if self._discarding:
            if self._offered and not self._finished:
                self._after_switch += data
                self._read_or_stop()
            return
        if not (self._share.waiting and self._has_unparsed()):
            self._ready_us = self._door.clock.now_us() - self._door.turns.lag_us()
        left = self._unparsed[self._parsed_to :]
        self._unparsed = left + data if left else data
        self._parsed_to = 0
        self._reads += 1
        self._work(free=self._class == STRANGER and self._reads <= NEW_READS_MAX)

    def _feed(self, data: bytes) -> None:
        before = self._progress, self._head.bytes, self._body_bytes
        size = len(data)
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = self._without_offer(data[offer.args[0] :])
            except httptools.HttpParserError:
                self._not_http()
                return
            else:
                break
        told = before != (self._progress, self._head.bytes, self._body_bytes)
        self._untold_bytes = 0 if told else self._untold_bytes + size
        if self._head.bytes + self._untold_bytes > self._settings.head_bytes_max:
            self._refuse_head()

    def eof_received(self) -> bool:
        """Answer what was asked, where that can be read: the client sends nothing more."""
        if self._stream is not None:
            self._stream.cancel()
        if self._finished or not (self._exchanges or self._has_unparsed()) or self._peer.tls:
            return False
        self._half_closed = True
        if not self._has_unparsed():
            self._work()
        return True

    def pause_writing(self) -> None:
        """Stop answering and reading: the client does not read."""
        self._blocked = True
        self._read_or_stop()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._blocked = False
        self._note_ready()
        if self._readable is not None:
            self._readable.set()
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop everything but the work that the service has begun."""
        self._finished = self._discarding = True
        self._transport = None
        self._parser = None
        self._unparsed = b""
        for exchange in self._exchanges:
            if exchange.task is None:  # else it is still under way, though nobody waits for it
                self._uncount(exchange)
        self._exchanges.clear()
        self._receiving = None
        if self._stream is not None:
            self._stream.cancel()
        self._share.close()

    # What the listener asks.

    def under_way(self) -> int:
        """Return how many requests have no reply, one that is only beginning included."""
        return len(self._exchanges) + (self._head.coming or self._has_unparsed())

    def caller(self) -> str:
        """Return the caller of its last request."""
        return self._caller

    def held_bytes(self) -> int:
        """Return the bytes of input that is not worked on, and of bodies that wait."""
        size = len(self._unparsed) - min(self._parsed_to, len(self._unparsed))
        size += len(self._after_switch)
        if self._head.coming:
            size += self._head.bytes
        for exchange in self._exchanges:
            size += exchange.held_bytes
        return size

    def drain(self) -> None:
        """Answer what is under way, announce the end, close."""
        self._draining = True
        if self._stream is not None:
            self._stream.cancel()
        elif self._finished or not self.under_way():
            self._close()

    def check_callers(self, _reloaded: bool) -> bool:
        """End the requests of callers whose access has ended."""
        now_us = self._door.clock.now_us()
        if self._stream is not None:
            why = "" if self._stream_of is None else self._stream_of.ended(now_us)
            if not why:
                return False
            self._stream_of = None
            if self._stream_is_events:
                self._out.append(last_event(why))
                self._flush()
            self._stream.cancel()
            return True
        ended = False
        for exchange in self._exchanges:
            request = exchange.request
            identity = None if request is None else request.identity
            if exchange.reply is not None or identity is None or not identity.ended(now_us):
                continue
            if exchange.task is not None:
                exchange.task.cancel()
            self._refuse_body(exchange, ACCESS_ENDED)
            ended = True
        if ended:
            self._work()
        return ended

    def tick(self, now_s: float) -> None:
        """End what takes too long."""
        if self._stream is not None:
            return  # the listener ends it where nobody reads
        if self._finished:
            if self._abort_at_s == _NEVER:
                self._abort_at_s = now_s + self._settings.linger_s
            elif now_s >= self._abort_at_s and self._transport is not None:
                self._transport.abort()
            return
        state = self._state()
        # Only the end of a head or of a body is progress: bytes one by one are none.
        progress = (self._progress, state)
        if progress != self._last_progress:
            self._last_progress = progress
            self._since_s = now_s
        elif now_s - self._since_s >= self._timeout_s(state) and not self._blocked:
            self._time_out(state)

    def _state(self) -> int:
        if not self._exchanges:
            return _HEAD if self._head.coming else _REST
        return _ANSWER if self._exchanges[0].whole else _BODY

    def _timeout_s(self, state: int) -> float:
        settings = self._settings
        return (
            settings.keep_alive_s,
            settings.head_timeout_s,
            settings.body_timeout_s,
            settings.answer_timeout_s,
        )[state]

    def _time_out(self, state: int) -> None:
        if state == _REST:
            self.drain()
        elif state == _HEAD:
            self._refuse_unreadable(HEAD_TOO_SLOW)
        else:
            first = self._exchanges[0]
            first.keep_alive = False
            if first.task is not None:
                first.task.cancel()
            if first.written:
                self._end()  # it has its answer, and its body has no end
            else:
                first.reply = ANSWER_TOO_SLOW if state == _ANSWER else BODY_TOO_SLOW
        self._work()

    # What the parser tells. Nothing may be raised here: it would come back wrapped.

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._progress += 1
        self._head.begin()

    def on_url(self, url: bytes) -> None:
        """A piece of what is asked for."""
        self._head.add_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer."""
        head = self._head
        head.add_header(name, value)
        if not head.coming and head.bytes > self._settings.head_bytes_max:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        """The head is whole; the body, if there is one, comes next."""
        self._progress += 1
        self._door.requests += 1
        parser = self._parser
        version: str = parser.get_http_version()
        method: str = parser.get_method().decode("ascii")
        request = self._head.end(method, version, self._peer)
        keep_alive = version == "1.1" and bool(parser.should_keep_alive())
        mistake = self._head.mistake
        if mistake is None and self._door.proxies is not None:
            mistake = self._door.proxies.introduce(request)
        exchange = HttpExchange(request, mistake, keep_alive)
        if exchange.reply is not None:
            self._door.bad_requests += 1
        else:
            self._check_body_head(exchange, request)
        self._receiving = exchange
        self._exchanges.append(exchange)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        exchange = self._receiving
        if exchange is None:
            return
        exchange.expects = False
        exchange.size += len(body)
        exchange.rest -= len(body)
        if exchange.size > self._settings.body_bytes_max:
            self._refuse_body(exchange, BODY_TOO_LARGE)
        elif exchange.reply is not None:
            return
        elif self._door.body_bytes + len(body) > self._settings.bodies_bytes_max:
            self._door.overloaded += 1
            self._refuse_body(exchange, TOO_MANY)
        else:
            self._door.body_bytes += len(body)
            exchange.held_bytes += len(body)
            exchange.body += body

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._progress += 1
        if self._receiving is not None:
            self._receiving.whole = True
            self._receiving = None

    def _check_body_head(self, exchange: HttpExchange, request: HttpRequest) -> None:
        """Refuse by what the head says of the body."""
        length = request.header(b"content-length")
        if len(length) > 15 or (length and int(length) > self._settings.body_bytes_max):
            self._refuse_body(exchange, BODY_TOO_LARGE)
        elif length:
            exchange.rest = int(length)
        expected = request.header(b"expect").lower()
        if expected == b"100-continue":
            exchange.expects = True
        elif expected:
            exchange.begun, exchange.reply = True, NO_EXPECTATION

    def _refuse_head(self) -> None:
        """Refuse what is more than headers, or what frames a body, may be."""
        if self._head.coming:
            self._refuse_unreadable(HEAD_TOO_LARGE)
        elif self._receiving is not None and not self._finished:
            self._refuse_body(self._receiving, HEAD_TOO_LARGE)

    def _refuse_body(self, exchange: HttpExchange, reply: HttpReply) -> None:
        exchange.body.clear()
        self._free_body(exchange)
        exchange.keep_alive = False
        if exchange.written:
            self._end()  # it has its answer, and goes on
        elif exchange.reply is None:
            exchange.begun, exchange.reply = True, reply

    def _refuse_rest(self, coming: HttpExchange) -> None:
        """Of a client that sends nothing more: what is not whole now never will be."""
        self._receiving = None
        coming.whole = True
        self._refuse_body(coming, BAD_REQUEST)
        self._answer_all()

    def _not_http(self) -> None:
        coming = self._receiving
        if coming is None:
            self._refuse_unreadable(BAD_REQUEST)
            return
        # The mistake is in a body.
        self._discarding = True
        self._door.bad_requests += 1
        coming.whole, coming.keep_alive = True, False
        if coming.reply is None:
            coming.begun, coming.reply = True, BAD_REQUEST
        elif coming.written:
            self._end()

    def _without_offer(self, rest: bytes) -> bytes:
        """Another protocol was offered, and we stay with this one.

        The parser takes what follows for that protocol's; so it is parsed anew without the offer.
        Java's client makes one with every request that is not over TLS.
        """
        offer = self._exchanges[-1]
        request = offer.request
        version: str = self._parser.get_http_version()
        switches = version == "1.1" and request is not None and self._door.switches(request)
        if offer.reply is None and switches:
            # What follows is the other protocol's, or nothing is if we stay with this one.
            offer.keep_alive = False
            self._discarding = True
            self._offered = True
            self._after_switch = rest + self._unparsed[self._parsed_to :]
            return b""
        if offer.reply is not None:  # what was refused stays refused, and nothing follows it
            offer.keep_alive = False
            self._discarding = True
            return b""
        self._exchanges.pop()
        if request is None or request.method == "CONNECT":
            self._refuse_unreadable(BAD_REQUEST)
            return b""
        self._door.requests -= 1
        self._parser = httptools.HttpRequestParser(self)
        return self._head.without_offer(request, version, keep_alive=offer.keep_alive) + rest

    def _refuse_unreadable(self, reply: HttpReply) -> None:
        """Refuse a request that cannot be read; nothing after it can be."""
        self._discarding = True
        self._head.coming = False
        self._door.bad_requests += 1
        self._exchanges.append(HttpExchange(None, reply, keep_alive=False))

    # Answering: always the first of the line.

    def _work(self, *, free: bool = False) -> None:
        """Parse and answer, as far as the client reads and the turn has room; write it at once.

        The first that is read of a stranger is `free`: there health is answered in any turn.
        """
        if self._working:
            return
        self._working = True
        if self._rests and not self._share.waiting:
            self._rests = False
            self._note_ready()  # that it was put off is no queue
        self._share.begin()
        self._answer_all()
        while self._may_parse() and (free or self._enter()):
            free = False
            self._feed(self._portion())
            self._answer_all()
        if self._half_closed and self._receiving is not None and not self._has_unparsed():
            self._refuse_rest(self._receiving)
        self._working = False
        self._keep_pace()
        self._flush()
        self._read_or_stop()
        if self._half_closed and not (self._exchanges or self._has_unparsed()):
            self._close()

    def _enter(self) -> bool:
        """Whether one more portion may be worked on in this turn; if not, it waits for the next."""
        share = self._share
        if share.enter_or_wait(self._class, self._caller):
            return True
        if share.served:
            self._note_ready()  # from here on it waits for others alone
        return False

    def _note_ready(self) -> None:
        self._ready_us = self._door.clock.now_us()

    def _may_parse(self) -> bool:
        """Whether there is something to parse, and room for it."""
        return self._has_unparsed() and not (
            self._share.waiting or self._blocked or self._discarding or self._is_full()
        )

    def _has_unparsed(self) -> bool:
        return self._parsed_to < len(self._unparsed) and not self._discarding

    def _is_full(self) -> bool:
        """Whether enough was read ahead: requests, or their bodies."""
        count = len(self._exchanges)
        if count < 2:
            return False
        if count > self._settings.pipelined_max:
            return True
        size = 0
        for exchange in self._exchanges:
            size += len(exchange.body)
        return size > self._settings.body_bytes_max

    def _portion(self) -> bytes:
        """What is parsed next."""
        coming = self._receiving
        size = _PORTION_BYTES if coming is None else max(_PORTION_BYTES, coming.rest)
        at = self._parsed_to
        self._parsed_to = at + size
        if at == 0 and size >= len(self._unparsed):
            return self._unparsed
        return self._unparsed[at : at + size]

    def _answer_all(self) -> None:
        """Answer those that can be answered, in their order."""
        while self._exchanges and not self._blocked and not self._finished:
            if not self._answer(self._exchanges[0]):
                break
            self._exchanges.popleft()
            self._progress += 1
            if self._out_bytes > _TURN_BYTES:
                self._flush()  # and learn whether anybody reads

    def _answer(self, first: HttpExchange) -> bool:
        """Answer it as far as possible; whether it is done, its body included."""
        if not first.begun:
            self._begin(first)
        ready = first.reply is None and first.whole and first.task is None
        if ready and not self._share.waiting and self._enter():
            self._run(first)
        if first.reply is None:
            if first.expects:
                first.expects = False
                self._out.append(_CONTINUE)
            return False
        if not first.written:
            self._write(first, first.reply)
        return first.whole

    def _begin(self, first: HttpExchange) -> None:
        first.begun = True
        request = first.request
        assert request is not None
        request.lag_us = max(0, self._door.clock.now_us() - self._ready_us)
        try:
            outcome = self._door.handler(request)
        except Exception:
            outcome = self._log_fault()
        if request.identity is not None:
            self._class = class_of(request.identity)
            self._caller = request.identity.name
            if self._pace is not None:
                self._pace.identify(self._caller)
        if isinstance(outcome, HttpReply):
            first.reply = outcome
        elif self._door.under_way >= self._settings.requests_max:
            self._door.overloaded += 1
            first.reply = TOO_MANY
        else:
            first.finish = outcome
            first.counted = True
            self._door.under_way += 1

    def _run(self, first: HttpExchange) -> None:
        assert first.finish is not None
        body = bytes(first.body)
        first.body.clear()
        try:
            answer = first.finish(body)
        except Exception:
            answer = self._log_fault()
        if isinstance(answer, HttpReply):
            first.reply = answer
            return
        task = asyncio.get_running_loop().create_task(self._await_reply(first, answer))
        first.task = task
        self._door.tasks.add(task)
        task.add_done_callback(self._door.tasks.discard)

    async def _await_reply(self, first: HttpExchange, answer: Awaitable[HttpReply]) -> None:
        try:
            reply = await answer
        except Exception:
            reply = self._log_fault()
        finally:
            self._uncount(first)
        if first.reply is None:
            first.reply = reply
        self._note_ready()  # what came behind it had to wait for its own kind
        self._work()

    def _uncount(self, exchange: HttpExchange) -> None:
        if exchange.counted:
            exchange.counted = False
            self._door.under_way -= 1
        self._free_body(exchange)

    def _free_body(self, exchange: HttpExchange) -> None:
        self._door.body_bytes -= exchange.held_bytes
        exchange.held_bytes = 0

    def _log_fault(self) -> HttpReply:
        self._door.faults += 1
        _log.exception("a request was answered with 500")
        return OUR_FAULT

    def _keep_pace(self) -> None:
        """Put the connection off if all who speak on it are far over their quota."""
        if self._pace is None or self._share.waiting or self._finished:
            return
        delay_us = self._pace.rest_us()
        if delay_us > 0:
            self._rests = True
            self._share.rest(delay_us, self._class, self._caller)

    # Writing.

    def _write(self, first: HttpExchange, reply: HttpReply) -> None:
        goes_on = reply.pieces is not None or reply.switch is not None
        if goes_on and self._door.streams >= self._settings.streams_max:
            self._door.overloaded += 1
            reply = TOO_MANY
        first.written = True
        first.body.clear()
        self._progress += 1
        if self._pace is not None and first.request is not None:
            reply = _recorded(self._pace, first.request, reply)
        show = self._door.error_page
        if show is not None and reply.content_type == PROBLEM and first.request is not None:
            reply = show(first.request, reply)
        if self._door.cors is not None and first.request is not None:
            reply = self._door.cors.dress(first.request, reply)
        self._uncount(first)
        if reply.switch is not None:
            self._switch(reply, reply.switch)
            return
        nothing_follows = len(self._exchanges) == 1 and not self._has_unparsed()
        last = (
            reply.close
            or reply.pieces is not None
            or not first.keep_alive
            or self._draining
            or ((self._half_closed or self._door.leaving) and nothing_follows)
            or (first.expects and not first.whole)  # nobody knows whether a body will come
        )
        is_head = first.request is not None and first.request.method == "HEAD"
        try:
            self._out.append(head_of(reply, self._door.date(), last=last))
        except ValueError:
            reply = self._log_fault()
            self._out.append(head_of(reply, self._door.date(), last=last))
        if not is_head and reply.status not in NO_BODY:
            self._out.append(reply.body)
            self._out_bytes += len(reply.body)
        if reply.pieces is not None and not is_head:
            self._stream_of = None if first.request is None else first.request.identity
            self._stream_is_events = reply.content_type == EVENTS
            self._begin_stream(reply.pieces)
        elif last:
            self._end()

    def _switch(self, reply: HttpReply, make: Callable[[], asyncio.Protocol]) -> None:
        """Hand the connection over, with what came after the request."""
        transport = self._transport
        if transport is None:
            return
        self._out.append(head_of(reply, self._door.date(), last=False))
        out, rest, paused = b"".join(self._out), self._after_switch, self._paused
        self._door.streams += 1
        # Nothing more is told to this one, and it does nothing more.
        self._finished = self._discarding = True
        self._transport = self._parser = None
        self._unparsed = self._after_switch = b""
        owner = cast("AcceptedConnection", transport.get_protocol())
        owner.on_lost = self._door.end_stream
        inner = make()
        owner.serve_with(inner)
        transport.write(out)
        if paused:
            transport.resume_reading()
        if rest and not transport.is_closing():
            inner.data_received(rest)

    def _begin_stream(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self._discarding = True
        self._door.streams += 1
        self._stream = asyncio.get_running_loop().create_task(self._send(pieces))
        self._door.tasks.add(self._stream)
        self._stream.add_done_callback(self._stream_ended)

    async def _send(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self._readable = asyncio.Event()
        try:
            async for piece in pieces:
                _check_piece(piece, self._settings.piece_bytes_max)
                self._out.append(piece)
                self._flush()
                while self._blocked:
                    self._readable.clear()
                    await self._readable.wait()
        except asyncio.CancelledError:
            pass  # the client has gone, or is sent away
        except Exception:
            self._log_fault()
        finally:
            await pieces.aclose()

    def _stream_ended(self, task: asyncio.Task[None]) -> None:
        self._door.tasks.discard(task)
        self._door.end_stream()
        self._stream = None
        self._finished = True
        self._close()

    def _end(self) -> None:
        """Answer nothing more; a client that still sends has time to read the last reply."""
        done = not (
            self._discarding
            or self._head.coming
            or (self._exchanges and not self._exchanges[-1].whole)
        )
        self._finished = self._discarding = True
        self._flush()
        transport = self._transport
        if transport is None:
            return
        if done or self._half_closed:
            self._close()
        elif transport.can_write_eof():
            # Closed with bytes unread it would be a reset, and take the answer with it.
            transport.write_eof()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            out, self._out, self._out_bytes = self._out, [], 0
            if not self._transport.is_closing():
                self._transport.write(b"".join(out))

    def _read_or_stop(self) -> None:
        """Read on only while the client takes the replies."""
        transport = self._transport
        full = self._blocked or self._share.waiting or self._is_full()
        full = full or len(self._after_switch) > _TURN_BYTES
        paused = full and not self._finished
        if paused == self._paused or transport is None or transport.is_closing():
            return
        self._paused = paused
        if paused:
            transport.pause_reading()
        else:
            transport.resume_reading()


def _check_piece(piece: bytes, bytes_max: int) -> None:
    """Raise for a piece of a reply that is too long."""
    if len(piece) > bytes_max:
        remedy = f"send at most {bytes_max:,} at a time (http.piece_bytes_max)"
        raise BadValue("piece", f"{len(piece):,} bytes", remedy)


def _recorded(pace: ConnectionPace, request: HttpRequest, reply: HttpReply) -> HttpReply:
    """Record what became of a request; a refusal that slows its caller says so."""
    if request.identity is None:
        if reply.status == HTTPStatus.UNAUTHORIZED:
            pace.record_stranger()
    elif reply.over_quota:
        slowed_us = pace.record_refused(request.identity.name)
        if slowed_us > 0:
            slowed_ms = b"%d" % -(-slowed_us // 1_000)
            return reply._replace(headers=(*reply.headers, (SLOWED_MS, slowed_ms)), head=b"")
    elif reply.status < HTTPStatus.BAD_REQUEST or reply.status == HTTPStatus.NOT_FOUND:
        pace.record_served(request.identity.name)
    return reply
