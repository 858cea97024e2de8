"""ASGI: a protected application.

    app = protect(app, Resilience())

It is a plain ASGI callable, the outermost one. A request is given its deadline, waits for a slot,
and runs with the context of `resilience/context.py`. A refusal is problem details with an overload
mark where we are overloaded. Its endpoint is the name that `endpoint` gives a scope, or its path
below a mount or a root path. WebSockets and lifespan pass unchanged, and so does what `bypass`
names. A claim that cannot be understood is answered with 400.

    body        read before the request is queued (`inbox.py` has the bounds)
    slot        from admission to the last byte of the response; of a stream, to its first message
                (`hold_streams`: its last)
    hang-up     leaves the queue at once (`inbox.py`); work that has begun goes on
    background  what the application does after its response holds no slot

A failure (5xx) of a request whose call to a backend ended with an overload hands that on with a
mark. It says nothing of our own slots, so a limit that is found learns nothing from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.doors.asgi import (
    App,
    Message,
    RawFields,
    Receive,
    Scope,
    Send,
    path_in_app,
    respond,
)
from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS, criticality_of, left_us_of
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.policies.stack import outcome_of
from sluicegate.resilience.context import (
    ServedRequest,
    deadline_refusal,
    reset_served,
    set_served,
)
from sluicegate.resilience.overload_mark import handed_on_fields
from sluicegate.resilience.server.inbox import READ_BYTES, Bodies, Inbox, InFlight, body_bytes
from sluicegate.resilience.server.protection import Protection, check_app, protection_of
from sluicegate.resilience.settings import Resilience

_OVERLOADED = frozenset({503, 504})
_PARTS = ("http.response.body", "http.response.zerocopysend")
_HELD_BYTES_MAX = 2 * READ_BYTES  # in the inbox, and in the server


@final
class ProtectedApp:
    """An application behind a protection; `protect` makes it."""

    def __init__(
        self,
        app: App,
        protection: Protection,
        caller: Callable[[Scope], str | None] | None,
        endpoint: Callable[[Scope], str] | None,
    ) -> None:
        self.app = app
        self.protection = protection
        self._caller = caller
        self._endpoint = endpoint
        self._in_flight = InFlight()
        self._bodies = Bodies(protection.settings.queue_bytes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request when it is its turn; pass everything else."""
        protection = self.protection
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        endpoint = path_in_app(scope) if scope.get("root_path") else scope["path"]
        if self._endpoint is not None and endpoint not in protection.bypass:
            endpoint = self._endpoint(scope)
        if endpoint in protection.bypass:
            return await self.app(scope, receive, send)
        left, claimed = [], []
        for name, value in scope["headers"]:
            if name == DEADLINE_MS:
                left.append(value)
            elif name == CRITICALITY:
                claimed.append(value)
        try:
            left_us = left_us_of(left) if left else -1
            criticality = criticality_of(claimed) if claimed else None
        except BadValue as error:
            return await _refuse_claim(error, send)
        now_us = protection.clock.now_us()
        request = protection.begin(
            endpoint,
            now_us,
            left_us=left_us,
            criticality=criticality,
            caller="" if self._caller is None else self._caller(scope) or "",
        )
        inbox: Inbox | None = None
        size = body_bytes(scope)
        admitted = None if size else protection.try_admit(request, now_us)
        if admitted is None:
            inbox = Inbox(scope, receive)
            try:
                admitted = await self._wait(request, size, inbox)
            finally:
                if not isinstance(admitted, GatePermit):
                    inbox.close()
            if admitted is None:
                return None  # the caller has hung up
        if isinstance(admitted, Decision):
            return await self._refuse(admitted, request, scope, send)
        claimed_us = request.arrived_us + left_us if left_us >= 0 else None
        return await self._serve(scope, receive, send, inbox, admitted, claimed_us)

    async def _wait(
        self, request: Request, size: int, inbox: Inbox
    ) -> GatePermit | Decision | None:
        """Return a slot or a refusal, after the body; None if the caller has hung up."""
        protection = self.protection
        if size:
            await inbox.read_body(size, self._bodies)
            if inbox.gone:
                return None
            admitted = protection.try_admit(request, protection.clock.now_us())
            if admitted is not None:
                return admitted
        task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        inbox.hung_up = task.cancel
        inbox.read_ahead()
        held = _HELD_BYTES_MAX if size < 0 else min(size, _HELD_BYTES_MAX)
        try:
            return await protection.wait(request, max(held, inbox.held_bytes))
        except asyncio.CancelledError:
            if inbox.gone and task.uncancel() <= cancelling:
                return None
            raise
        finally:
            inbox.hung_up = None
            inbox.ahead = False

    async def _refuse(self, decision: Decision, request: Request, scope: Scope, send: Send) -> None:
        mark = self.protection.mark_of(decision, request)
        raw = [] if mark is None else _raw(mark.http_fields())
        head = scope["method"] == "HEAD"
        await respond(Judgement(decision, ()), raw, send, "http", head=head)

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        inbox: Inbox | None,
        permit: GatePermit,
        claimed_us: int | None,
    ) -> None:
        """Let the application work."""
        protection = self.protection
        request = permit.request
        if inbox is None and request.deadline_us is None and permit.resource.found is not None:
            inbox = Inbox(scope, receive)
        served = protection.served(request)
        head = scope["method"] == "HEAD"
        answer = _Answer(send, protection, served, permit, inbox, claimed_us, head)
        if inbox is not None:
            receive = inbox.receive
            if request.deadline_us is None:
                inbox.hung_up = answer.record_hung_up
                self._in_flight.add(inbox)
        token = set_served(served)
        try:
            await self.app(scope, receive, answer.send)
        except BaseException as error:
            answer.outcome = outcome_of(error) if served.overload_us < 0 else Outcome.IGNORE
            raise
        finally:
            reset_served(token)
            answer.close()


def protect(
    app: App,
    settings: Resilience | None = None,
    *,
    caller: Callable[[Scope], str | None] | None = None,
    endpoint: Callable[[Scope], str] | None = None,
    protection: Protection | None = None,
) -> ProtectedApp:
    """Return the application behind a protection of these settings, or behind the one given.

    `caller` names the authenticated caller of a scope. Without it all callers are strangers, and
    none may claim to be CRITICAL.
    """
    check_app(app, "ASGI")
    protection = protection_of(settings, protection, threaded=False)
    return ProtectedApp(app, protection, caller, endpoint)


@final
class _Answer:
    """Passes an answer on, and gives the slot back.

    An answer that begins after the time its caller claimed becomes a 504. With its last message the
    deadline binds no more.
    """

    __slots__ = (
        "_background",
        "_claimed_us",
        "_head",
        "_in_vain",
        "_inbox",
        "_permit",
        "_protection",
        "_send",
        "_served",
        "_streams",
        "outcome",
    )

    def __init__(
        self,
        send: Send,
        protection: Protection,
        served: ServedRequest,
        permit: GatePermit,
        inbox: Inbox | None,
        claimed_us: int | None,
        head: bool,
    ) -> None:
        self._send = send
        self._protection = protection
        self._served = served
        self._permit: GatePermit | None = permit
        self._inbox = inbox
        self._claimed_us = claimed_us
        self._head = head
        self._in_vain = self._streams = self._background = False
        self.outcome = Outcome.SUCCESS

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        kind = message["type"]
        if kind == "http.response.start":
            await self._start(message)
        elif kind in _PARTS:
            if message.get("more_body", False):
                if not self._in_vain:
                    await self._send(message)
                if not self._streams:
                    self._stream()
            else:
                await self._finish(message)
        elif kind == "http.response.pathsend":
            await self._finish(message)
        elif not self._in_vain:
            await self._send(message)

    def record_hung_up(self) -> None:
        """The caller has hung up while this was worked on."""
        if self._permit is not None:
            self._protection.record_hung_up(self._permit)

    def close(self) -> None:
        """The application has returned."""
        if self._permit is not None:
            self._end()
        if self._streams:
            self._streams = False
            self._protection.streams -= 1
        if self._background:
            self._protection.background -= 1
        if self._inbox is not None:
            self._inbox.close()

    async def _start(self, message: Message) -> None:
        status = message["status"]
        served = self._served
        if self._claimed_us is not None and self._protection.is_in_vain(self._claimed_us):
            self._in_vain = True
            self.outcome = Outcome.DROPPED
            judgement = Judgement(deadline_refusal(), ())
            await respond(judgement, [], self._send, "http", head=self._head)
            return
        if status >= 500:
            if served.overload_us >= 0:
                message = _handing_on(message, served.overload_us)
            if status in _OVERLOADED:
                self.outcome = Outcome.DROPPED if served.overload_us < 0 else Outcome.IGNORE
        await self._send(message)

    async def _finish(self, message: Message) -> None:
        """Send the last message; what the application does from now on is background work."""
        if self._background:
            await self._send(message)
            return
        if self._inbox is not None:
            self._inbox.hung_up = None  # what ends now is no hang-up
        if not self._in_vain:
            await self._send(message)
        self._served.deadline_us = None  # it would bind the background work
        if self._permit is not None:
            self._end()
        if self._streams:
            self._streams = False
            self._protection.streams -= 1
        self._background = True
        self._protection.background += 1

    def _stream(self) -> None:
        """The first message of several was sent."""
        self._streams = True
        self._protection.streams += 1
        if self._permit is not None and not self._protection.settings.hold_streams:
            self._end()

    def _end(self) -> None:
        permit, self._permit = self._permit, None
        if self._inbox is not None:
            self._inbox.hung_up = None
        if permit is not None:
            self._protection.end(permit, self.outcome)


def _handing_on(message: Message, after_us: int) -> Message:
    """Add the mark, and nothing that the application has said itself."""
    headers = list(message.get("headers", ()))
    have = {name.lower() for name, _ in headers}
    headers += [pair for pair in _raw(handed_on_fields(after_us)) if pair[0] not in have]
    return {**message, "headers": headers}


def _raw(fields: Sequence[tuple[str, str]]) -> RawFields:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in fields]


async def _refuse_claim(error: BadValue, send: Send) -> None:
    text = str(error).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": text})
