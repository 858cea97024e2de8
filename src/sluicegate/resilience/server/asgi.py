"""ASGI: a protected application.

    app = protect(app, Resilience())

It is a plain ASGI callable, the outermost one. A request is given its deadline, waits for a place
in the line of its endpoint, and runs with the context of `resilience/context.py`. A refusal is
problem details with an overload mark where we are overloaded. Its endpoint is the name that
`endpoint` gives a scope, or its path. WebSockets and lifespan pass as they are, and so does what
`bypass` names. A claim that cannot be understood is answered with 400.

A failure (5xx) of a request whose call to a backend ended with an overload hands that on with a
mark. It says nothing of our own places, so a limit that is found learns nothing from it.

A body is left in the server until there is a place: a request that waits weighs what that may have
read of it, and a line that holds too much refuses with QUEUE_FULL.

Who has hung up while it waited is served all the same. The time it has waited is what tells the
queue that its line stands: with those passed over who had left after 100 ms, 0.01 of what could be
done was answered in time at three times as much, and 0.88 is (four places of 40 ms under uvicorn).
The next in line was always about to leave. A deadline says so before the work begins.

A permit is held until the application returns, streamed bodies included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.permit import Outcome
from sluicegate.doors.asgi import App, Message, RawFields, Scope, Send, respond
from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS, criticality_of, left_us_of
from sluicegate.policies.deadline import refusal
from sluicegate.policies.stack import outcome_of
from sluicegate.resilience.context import ServedRequest, reset_served, set_served
from sluicegate.resilience.overload_mark import handed_on_fields
from sluicegate.resilience.server.protection import Protection, protection_of
from sluicegate.resilience.settings import Resilience

_OVERLOADED = frozenset({503, 504})
_DIGITS_MAX = 20  # of a length; Python reads no number of thousands of digits
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request when it is its turn; pass everything else."""
        protection = self.protection
        if scope["type"] != "http" or protection.bypasses(scope["path"]):
            return await self.app(scope, receive, send)
        endpoint = scope["path"]
        if self._endpoint is not None:
            endpoint = self._endpoint(scope)
            if protection.bypasses(endpoint):
                return await self.app(scope, receive, send)
        try:
            left_us = left_us_of(_values(scope, DEADLINE_MS))
            criticality = criticality_of(_values(scope, CRITICALITY))
        except BadValue as error:
            return await _refuse_claim(error, send)
        caller = "" if self._caller is None else self._caller(scope) or ""
        request = protection.begin(
            endpoint,
            left_us=left_us,
            criticality=criticality,
            caller=caller,
        )
        claimed_us = request.arrived_us + left_us if left_us >= 0 else None
        head = scope["method"] == "HEAD"
        admitted = await protection.admit(request, lambda: self._held_bytes(scope))
        if isinstance(admitted, Decision):
            mark = protection.mark_of(admitted, request)
            raw = [] if mark is None else _raw(mark.http_fields())
            return await respond(Judgement(admitted, ()), raw, send, "http", head=head)
        served = protection.served(request)
        token = set_served(served)
        sender = _Sender(send, protection, served, claimed_us, head=head)
        outcome = Outcome.IGNORE
        try:
            await self.app(scope, receive, sender.send)
            outcome = sender.outcome
        except BaseException as error:
            outcome = outcome_of(error) if served.overload_us < 0 else Outcome.IGNORE
            raise
        finally:
            reset_served(token)
            admitted.end(outcome)

    def _held_bytes(self, scope: Scope) -> int:
        """What the server may have read of the body."""
        ahead, size = self.protection.settings.read_ahead_bytes, _body_bytes(scope)
        return ahead if size < 0 else min(size, ahead)


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
    protection = protection_of(settings, protection, threaded=False)
    return ProtectedApp(app, protection, caller, endpoint)


@final
class _Sender:
    """Passes messages on, and remembers the status.

    An answer that begins after the time its caller claimed becomes a 504. With its last message the
    deadline binds no more.
    """

    __slots__ = ("_claimed_us", "_head", "_in_vain", "_protection", "_send", "_served", "status")

    def __init__(
        self,
        send: Send,
        protection: Protection,
        served: ServedRequest,
        claimed_us: int | None,
        *,
        head: bool,
    ) -> None:
        self._send = send
        self._served = served
        self._head = head
        self._protection = protection
        self._claimed_us = claimed_us
        self._in_vain = False
        self.status = 0

    @property
    def outcome(self) -> Outcome:
        if self.status not in _OVERLOADED:
            return Outcome.SUCCESS
        handed_on = self._served.overload_us >= 0 and not self._in_vain
        return Outcome.IGNORE if handed_on else Outcome.DROPPED

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._protection.is_in_vain(self._claimed_us):
                self._in_vain = True
                self.status = 504
                judgement = Judgement(refusal(), ())
                return respond(judgement, [], self._send, "http", head=self._head)
            if self.status >= 500 and self._served.overload_us >= 0:
                message = _handing_on(message, self._served.overload_us)
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._served.release_deadline()
        return _nothing() if self._in_vain else self._send(message)


def _handing_on(message: Message, after_us: int) -> Message:
    """Add the mark, and nothing that the application has said itself."""
    headers = list(message.get("headers", ()))
    have = {name.lower() for name, _ in headers}
    headers += [pair for pair in _raw(handed_on_fields(after_us)) if pair[0] not in have]
    return {**message, "headers": headers}


async def _nothing() -> None:
    """Take a part of an answer that nobody waits for."""


def _values(scope: Scope, name: bytes) -> Sequence[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _body_bytes(scope: Scope) -> int:
    """How long the body is; -1 if there may be one whose length is not said."""
    length = _values(scope, b"content-length")
    if length:
        return int(length[0]) if length[0].isdigit() and len(length[0]) <= _DIGITS_MAX else -1
    if _values(scope, b"transfer-encoding") or scope["method"] in _WITH_BODY:
        return -1
    return 0


def _raw(fields: Sequence[tuple[str, str]]) -> RawFields:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in fields]


async def _refuse_claim(error: BadValue, send: Send) -> None:
    text = str(error).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": text})
