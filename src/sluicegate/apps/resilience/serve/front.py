"""Front: the ASGI application of `sluicegate resilience serve`.

From outside to inside: `Front` reads the request ahead, ends it if its client disconnects while it
waits, and keeps the response of a slow reader; `protect` queues the request; `Forwarder` sends it
to a free thread of a worker.

An admitted request holds its slot until the worker has finished it, even if its client disconnects
before the response begins: the thread is busy, and cannot be interrupted. Once the response has
begun, a disconnect closes the connection to the worker, whose thread ends at its next write.

A request is sent once. If the worker ends before it answers, the client receives 502. Only a
connection that could not be opened is replaced by one to another worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, final

from sluicegate.apps.resilience.serve.request_stream import (
    BODY_STALL_S_MAX,
    BodyStalledError,
    RequestStream,
)
from sluicegate.apps.resilience.serve.response_buffer import HeldBytes, ResponseBuffer
from sluicegate.apps.resilience.serve.upstream import Upstream, WorkerLostError
from sluicegate.apps.resilience.serve.workers import ThreadBook, Workers
from sluicegate.contracts.errors import Unavailable
from sluicegate.doors.asgi import Message, Receive, Scope, Send
from sluicegate.doors.binding import Address
from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.forwarded import TrustedProxies
from sluicegate.doors.http.message import HttpReply, HttpRequest, problem
from sluicegate.doors.proxies import FORWARDED
from sluicegate.resilience.context import served_request
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.settings import Resilience
from sluicegate.system import now_us

_INCOMING: Final = "sluicegate.incoming"
_CALLER: Final = "sluicegate.caller"
_CONNECT_TRIES: Final = 3
_NO_ADDRESS: Final = Address("", 0)
_HOP_BY_HOP: Final = frozenset({
    b"connection", b"expect", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
# Written here; a client could choose its own address otherwise.
_OURS: Final = frozenset({
    CRITICALITY, DEADLINE_MS, FORWARDED.encode(), b"x-forwarded-for", b"x-forwarded-host",
    b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-proto", b"x-real-ip",
})  # fmt: skip
READY_PATHS: Final = frozenset({"/readyz", "/ready"})
_LEAVING: Final = problem(503, "Service Unavailable", "leaving: this server ends soon", close=True)
_BAD_GATEWAY: Final = problem(
    502, "Bad Gateway", "the worker process ended before it answered; the request was not repeated"
)
_BODY_TOO_SLOW: Final = problem(
    408, "Request Timeout", f"no byte of the body arrived for {BODY_STALL_S_MAX:g} s", close=True
)
_log: Final = logging.getLogger("sluicegate.resilience.serve")


def with_slots(settings: Resilience, slots: int) -> Resilience:
    """Return these settings with a known limit; a thread is busy to the last byte of a stream."""
    return replace(settings, slots=slots, hold_streams=True)


class ClientGoneError(Exception):
    """The client disconnected before its request was complete."""


@final
class Front:
    """The outermost application; `protected` is what `protect` returned for a `Forwarder`."""

    def __init__(
        self,
        workers: Workers,
        settings: Resilience,
        proxies: TrustedProxies | None = None,
        caller_header: bytes = b"",
    ) -> None:
        self._proxies = proxies
        self._caller_header = caller_header
        self._held = HeldBytes()
        self.leaving = False  # not ready, and each response closes its connection
        self.protected = protect(
            Forwarder(workers), settings, caller=lambda scope: scope.get(_CALLER)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; WSGI has no other scopes."""
        if scope["type"] != "http":
            return
        scope = dict(scope)
        mistake = self._introduce(scope)
        if mistake is not None:
            await _reply(mistake, send, scope["method"])
            return
        if self.leaving:
            if scope["path"] in READY_PATHS:
                await _reply(_LEAVING, send, scope["method"])
                return
            send = _closing(send)
        incoming = RequestStream(scope, receive)
        scope[_INCOMING] = incoming
        try:
            await self._serve(scope, incoming, send)
        finally:
            incoming.close()

    async def _serve(self, scope: Scope, incoming: RequestStream, send: Send) -> None:
        try:
            async with asyncio.timeout(BODY_STALL_S_MAX):
                stays = await incoming.settle()
        except TimeoutError:
            await _reply(_BODY_TOO_SLOW, send, scope["method"])
            return
        if not stays:
            return
        task = asyncio.current_task()
        assert task is not None
        leave = task.cancel
        incoming.on_gone = leave  # until `Forwarder` takes over
        outgoing = ResponseBuffer(send, self._held)
        try:
            await self.protected(scope, incoming.receive, outgoing.send)
            await outgoing.finish()
        except asyncio.CancelledError:
            if not incoming.gone or incoming.on_gone is not leave:
                raise
            task.uncancel()
        except BodyStalledError:  # before the request was queued
            await _reply(_BODY_TOO_SLOW, send, scope["method"])
        finally:
            outgoing.close()

    def _introduce(self, scope: Scope) -> HttpReply | None:
        """Take client, scheme, host and caller from a trusted proxy; drop them from others."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        client = scope.get("client") or ("", 0)
        trusted = self._proxies is not None and self._proxies.trusts(client[0])
        if self._proxies is not None and trusted:
            peer = PeerInfo(client[0], client[1], _NO_ADDRESS, scope["scheme"] == "https")
            request = HttpRequest(scope["method"], scope["path"], b"", headers, peer)
            mistake = self._proxies.introduce(request)
            if mistake is not None:
                return mistake
            scope["client"] = (request.peer.host, request.peer.port)
            scope["scheme"] = "https" if request.peer.tls else "http"
            host = request.header(b"host")
            scope["headers"] = [
                (name, host if name == b"host" else value) for name, value in headers
            ]
            scope[_CALLER] = request.header(self._caller_header).decode("latin-1")
        elif self._caller_header:
            scope["headers"] = [one for one in headers if one[0] != self._caller_header]
        return None


@final
class Forwarder:
    """The application that `protect` wraps: sends a request to a worker, and its response back."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Forward one admitted request, or one that bypasses the queue."""
        incoming: RequestStream = scope[_INCOMING]
        book = self._workers.spare if served_request() is None else self._workers.threads
        try:
            async with _connected(book) as upstream:
                await _Exchange(scope, incoming, receive, send, upstream).run()
        except Unavailable as error:
            reply = problem(503, "Service Unavailable", str(error))
            await _reply(reply, send, scope["method"])


@asynccontextmanager
async def _connected(book: ThreadBook) -> AsyncIterator[Upstream]:
    """Hold a thread of a worker and a connection to it."""
    for _ in range(_CONNECT_TRIES):
        async with book.thread() as worker:
            try:
                upstream = await worker.connect()
            except (ConnectionRefusedError, FileNotFoundError):  # it has ended
                book.remove(worker)
                continue
            except OSError as error:
                raise Unavailable("a worker", f"connecting to its socket failed: {error}") from None
            try:
                yield upstream
            finally:
                worker.release(upstream)
                if upstream.broken:  # else its thread would be given to the next request
                    await worker.wait_end()
            return
    raise Unavailable("a worker", f"no connection in {_CONNECT_TRIES} tries; see the log")


@final
class _Exchange:
    """One request on a connection, and its response."""

    def __init__(
        self,
        scope: Scope,
        incoming: RequestStream,
        receive: Receive,
        send: Send,
        upstream: Upstream,
    ) -> None:
        self._scope = scope
        self._incoming = incoming
        self._receive = receive
        self._send = send
        self._upstream = upstream
        self._upload: asyncio.Task[None] | None = None
        self._began = False

    async def run(self) -> None:
        """Forward both; reply 502 if the worker ends before it answers."""
        self._incoming.on_gone = self._client_gone
        try:
            await self._forward()
        except WorkerLostError:
            await self._fail()
        finally:
            self._incoming.on_gone = None
            if self._upload is not None:
                if not self._upload.done():
                    self._upstream.abort()
                self._upload.cancel()
                await asyncio.gather(self._upload, return_exceptions=True)

    async def _forward(self) -> None:
        upstream, send = self._upstream, self._send
        await upstream.begin(self._scope["method"], request_head(self._scope))
        if self._incoming.has_body:
            self._upload = asyncio.create_task(self._send_body())
            self._upload.add_done_callback(self._uploaded)
        head = await upstream.head()
        if self._incoming.gone:
            upstream.abort()
            return
        fields = [one for one in head.fields if one[0] not in _dropped(head.fields)]
        self._began = True
        await send({"type": "http.response.start", "status": head.status, "headers": fields})
        async for chunk in upstream.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _send_body(self) -> None:
        chunked = all(name != b"content-length" for name, _ in self._scope["headers"])
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            data, more = message.get("body", b""), message.get("more_body", False)
            if chunked and data:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if chunked and not more:
                data += b"0\r\n\r\n"
            if data:
                await self._upstream.send(data)

    def _uploaded(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(task.exception(), ClientGoneError | TimeoutError):
            self._upstream.abort()

    def _client_gone(self) -> None:
        """End a response that has begun; the thread of any other cannot be interrupted."""
        if self._began:
            self._upstream.abort()

    async def _fail(self) -> None:
        upload = self._upload
        if upload is not None and upload.done() and not upload.cancelled():
            error = upload.exception()
            if isinstance(error, TimeoutError) and not self._began:
                await _reply(_BODY_TOO_SLOW, self._send, self._scope["method"])
                return
        if self._incoming.gone:
            return
        target = f"{self._scope['method']} {self._scope['path']}"
        _log.warning("%s: the worker ended before the end of its response", target)
        if not self._began:  # else the server closes the connection, so the client notices
            await _reply(_BAD_GATEWAY, self._send, self._scope["method"])


def request_head(scope: Scope) -> bytes:
    """Return the head of a request as a worker receives it."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    dropped = _dropped(headers) | _OURS
    target = scope["raw_path"] or b"/"
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode("ascii"), target)]
    lines += [b"%b: %b" % one for one in headers if one[0] not in dropped]
    lines += [b"%b: %b" % one for one in _introduction(scope)]
    if any(name == b"transfer-encoding" for name, _ in headers):
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join([*lines, b"", b""])


def _introduction(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the fields that describe the client, and the class and deadline from `protect`."""
    fields = [(b"x-forwarded-proto", scope["scheme"].encode("ascii"))]
    client = scope.get("client")
    if client and client[0]:
        fields.append((b"x-forwarded-for", client[0].encode("ascii")))
    fields += [(b"x-forwarded-host", one) for name, one in scope["headers"] if name == b"host"]
    served = served_request()
    if served is not None:
        fields.append((CRITICALITY, served.criticality.name.lower().encode("ascii")))
        if served.deadline_us is not None:
            left_ms = max(served.deadline_us - now_us(), 0) // 1_000
            fields.append((DEADLINE_MS, b"%d" % left_ms))
    return fields


def _dropped(fields: list[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the fields that are for one connection only, those that Connection names too."""
    named = [value for name, value in fields if name == b"connection"]
    return _HOP_BY_HOP.union(one.strip().lower() for value in named for one in value.split(b","))


def _closing(send: Send) -> Send:
    """Return a `send` whose response closes its connection."""

    def sent(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            fields = [one for one in message["headers"] if one[0] != b"connection"]
            message = {**message, "headers": [*fields, (b"connection", b"close")]}
        return send(message)

    return sent


async def _reply(reply: HttpReply, send: Send, method: str) -> None:
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body))]
    if reply.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    body = b"" if method == "HEAD" else reply.body
    await send({"type": "http.response.body", "body": body})


__all__ = ["Forwarder", "Front", "request_head", "with_slots"]
