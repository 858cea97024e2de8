"""Who: whom a request speaks for, and how an error becomes a reply."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from sluicegate.contracts.access import Access, Grant, Identity, PeopleAccess
from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    DataLoss,
    Forbidden,
    Refused,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.guard import Judgement
from sluicegate.doors.headers import retry_after_s
from sluicegate.doors.http.message import PROBLEM, HttpReply, HttpRequest, json_bytes, problem
from sluicegate.doors.problem import details

CHALLENGE: Final = (b"www-authenticate", b'Bearer realm="sluicegate"')
WRONG_TOKEN: Final = (
    b"www-authenticate",
    b'Bearer realm="sluicegate", error="invalid_token"',
)
NOBODY: Final = Identity("", ())  # where none is needed
SPEAKS_FOR: Final = b"x-sluicegate-for"  # the name of a person, percent-encoded
_BEARER: Final = b"bearer "
_OFFERED: Final = b"bearer."  # a subprotocol
_SHOWN_CHARS_MAX: Final = 80


def identity_of(request: HttpRequest, access: Access) -> Identity | HttpReply:
    """Who speaks, or the 401 that asks for it: a token, else a certificate, else nobody's right.

    A token that nobody has is refused even where none is needed: who sends one means it.
    """
    value = request.header(b"authorization") or _offered_token(request)
    if value:
        if value[: len(_BEARER)].lower() != _BEARER or request.count(b"authorization") > 1:
            return unauthorized("send Authorization: Bearer, once", CHALLENGE)
        identity = access.by_token(value[len(_BEARER) :].strip().decode("latin-1"))
        return identity or unauthorized("this token is nobody's", WRONG_TOKEN)
    if request.peer.names:
        identity = access.by_certificate(request.peer.names)
        if identity is not None:
            return identity
    nobody = access.anonymous
    if nobody is not None:
        return nobody
    return unauthorized("send Authorization: Bearer and a token", CHALLENGE)


def spoken_for(
    request: HttpRequest, access: PeopleAccess, identity: Identity
) -> Identity | HttpReply:
    """Whom a console speaks for, or the refusal; the identity itself, if it names nobody."""
    count = request.count(SPEAKS_FOR)
    if count == 0:
        return identity
    if identity is access.anonymous or not identity.may(Grant.SPEAK_FOR):
        return reply_to(Forbidden(identity.name, Grant.SPEAK_FOR.value))
    name = unquote(request.header(SPEAKS_FOR).decode("latin-1"))
    person = access.by_login(name) if count == 1 else None
    remedy = "the access file here must have a caller of this name with login = true"
    return person or reply_to(BadValue(SPEAKS_FOR.decode(), name, remedy))


def _offered_token(request: HttpRequest) -> bytes:
    """What a browser says in the handshake of a WebSocket, where it can set no such header."""
    if request.header(b"upgrade").lower() == b"websocket":
        for name in request.header(b"sec-websocket-protocol").split(b","):
            if name.strip().startswith(_OFFERED):
                return _BEARER + name.strip()[len(_OFFERED) :]
    return b""


def reply_to(error: SluicegateError) -> HttpReply:
    """An error that was raised on purpose, as problem details."""
    if isinstance(error, BadValue):
        more = {"field": error.field, "value": printable(error.value), "remedy": error.remedy}
        return problem(400, "Bad Request", str(error), more=more)
    if isinstance(error, Unauthenticated):
        return unauthorized(error.remedy, CHALLENGE)
    if isinstance(error, Forbidden):
        more = {"grant": error.grant, "who": error.who}
        return problem(403, "Forbidden", str(error), more=more)
    if isinstance(error, Unavailable):
        retry = ((b"retry-after", b"1"),)
        more = {"what": error.what, "seen": error.detail}
        return problem(503, "Service Unavailable", str(error), headers=retry, more=more)
    if isinstance(error, Refused):
        members = details(Judgement(error.decision, ()))
        reason = error.decision.reason
        seconds = retry_after_s(error.decision)
        wait = ((b"retry-after", b"%d" % seconds),) if seconds > 0 else ()
        status = 503 if reason is None else reason.http_status
        return HttpReply(status, json_bytes(members), PROBLEM, wait)
    if isinstance(error, DataLoss):
        more = {"reason": "data_loss", "what": error.what, "seen": error.detail}
        return problem(500, "Internal Server Error", str(error), more=more)
    if isinstance(error, Conflict):
        more = {"what": error.what, "seen": error.detail}
        return problem(409, "Conflict", str(error), more=more)
    return problem(409, "Conflict", str(error))


def printable(value: object) -> str:
    """A value as a problem tells it."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."


def unauthorized(remedy: str, challenge: tuple[bytes, bytes]) -> HttpReply:
    """The 401 that asks for a name."""
    more = {"remedy": remedy}
    return problem(401, "Unauthorized", remedy, headers=(challenge,), more=more)
