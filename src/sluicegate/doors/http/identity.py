"""Who: whom a request speaks for, and how an error becomes a reply."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from sluicegate.contracts.access import Access, Grant, Identity, PeopleAccess
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    DataLoss,
    Forbidden,
    OutcomeUnknown,
    Refused,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.reasons import OUTCOME_UNKNOWN
from sluicegate.doors.headers import retry_after_s
from sluicegate.doors.http.message import PROBLEM, HttpReply, HttpRequest, json_bytes, problem
from sluicegate.doors.problem import details
from sluicegate.doors.proxies import address_in

CHALLENGE: Final = (b"www-authenticate", b'Bearer realm="sluicegate"')
WRONG_TOKEN: Final = (
    b"www-authenticate",
    b'Bearer realm="sluicegate", error="invalid_token"',
)
_NO_BEARER: Final = "the Authorization header is not one Bearer token"
_NO_TOKEN: Final = "the request names no caller"
_NAME_TOKEN: Final = "send the token of a caller that the service knows (--access, --token)"
NOBODY: Final = Identity("", ())  # where none is needed
SPEAKS_FOR: Final = b"x-sluicegate-for"  # the name of a person, percent-encoded
_BEARER: Final = b"bearer "
_OFFERED: Final = b"bearer."  # a subprotocol
_SHOWN_CHARS_MAX: Final = 80
QUERY_TOKEN: Final = b"access_token"
_NO_QUERY_TOKEN: Final = problem(
    400, "Bad Request", "no access_token is taken from the query here; send Authorization: Bearer"
)
_QUERY_TOKEN_IN_CLEAR: Final = problem(
    400, "Bad Request", "an access_token in the query needs TLS, here or at a trusted proxy"
)
_SEVERAL_TOKENS: Final = problem(
    400, "Bad Request", "send one token: in the query once, or in Authorization"
)
_REFUSALS_KEPT: Final = 64


def identity_of(request: HttpRequest, access: Access) -> Identity | HttpReply:
    """Who speaks, or the 401 that asks for it: a token, else a certificate, else nobody's right.

    A browser's WebSocket offers it as a subprotocol. An unknown token gets 401 even where
    anonymous callers are allowed.
    """
    value = request.header(b"authorization") or offered_token(request)
    if value:
        if value[: len(_BEARER)].lower() != _BEARER or request.count(b"authorization") > 1:
            return unauthorized(_NO_BEARER, "send Authorization: Bearer, once", CHALLENGE)
        try:
            identity = access.by_token(value[len(_BEARER) :].strip().decode("latin-1"))
        except Unauthenticated as error:
            return unauthorized(error.problem, error.remedy, WRONG_TOKEN)
        except SluicegateError as error:
            return reply_to(error)
        return identity or unauthorized("this token is nobody's", _NAME_TOKEN, WRONG_TOKEN)
    if request.peer.names:
        identity = access.by_certificate(request.peer.names)
        if identity is not None:
            return identity
    nobody = access.anonymous
    if nobody is not None:
        return nobody
    return unauthorized(_NO_TOKEN, "send Authorization: Bearer and a token", CHALLENGE)


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


def offered_token(request: HttpRequest) -> bytes:
    """What a browser says in the handshake of a WebSocket, where it can set no such header."""
    if request.header(b"upgrade").lower() == b"websocket":
        for name in request.header(b"sec-websocket-protocol").split(b","):
            if name.strip().startswith(_OFFERED):
                return _BEARER + name.strip()[len(_OFFERED) :]
    return b""


def take_query_token(request: HttpRequest, *, accepted: bool) -> HttpReply | None:
    """Move a token from the query, where it could be shown, to the header; or refuse it.

    Browsers' EventSource can send it nowhere else; `accepted` is whether the route is for it.
    """
    pairs = [pair.partition(b"=") for pair in request.query.split(b"&")]
    tokens = [value for name, _, value in pairs if unquote_to_bytes(name) == QUERY_TOKEN]
    if not tokens:
        return None
    request.query = b"&".join(
        b"".join(pair) for pair in pairs if unquote_to_bytes(pair[0]) != QUERY_TOKEN
    )
    if not accepted:
        return _NO_QUERY_TOKEN
    if not (request.peer.tls or _is_local(request.peer.host)):
        return _QUERY_TOKEN_IN_CLEAR
    if len(tokens) > 1 or b"authorization" in request.first:
        return _SEVERAL_TOKENS
    request.first[b"authorization"] = b"Bearer " + unquote_to_bytes(tokens[0])
    return None


def _is_local(host: str) -> bool:
    plain = address_in(host, 128)
    return not host or (bool(plain) and ip_address(plain).is_loopback)


def reply_to(error: SluicegateError) -> HttpReply:
    """An error that was raised on purpose, as problem details."""
    if isinstance(error, BadValue):
        more = {"field": error.field, "value": printable(error.value), "remedy": error.remedy}
        return problem(400, "Bad Request", str(error), more=more)
    if isinstance(error, Unauthenticated):
        return unauthorized(error.problem, error.remedy, CHALLENGE)
    if isinstance(error, Forbidden):
        more = {"grant": error.grant, "who": error.who}
        return problem(403, "Forbidden", str(error), more=more)
    if isinstance(error, OutcomeUnknown):
        more = {
            "reason": OUTCOME_UNKNOWN.name,
            "retry": OUTCOME_UNKNOWN.retry.value,
            "what": error.what,
            "seen": error.detail,
        }
        return problem(OUTCOME_UNKNOWN.http_status, "Internal Server Error", str(error), more=more)
    if isinstance(error, Unavailable):
        retry = ((b"retry-after", b"1"),)
        more = {"what": error.what, "seen": error.detail}
        return problem(503, "Service Unavailable", str(error), headers=retry, more=more)
    if isinstance(error, Refused):
        return _refusal(error.decision, error.detail)
    if isinstance(error, DataLoss):
        more = {"reason": "data_loss", "what": error.what, "seen": error.detail}
        return problem(500, "Internal Server Error", str(error), more=more)
    if isinstance(error, Conflict):
        more = {"what": error.what, "seen": error.detail}
        return problem(409, "Conflict", str(error), more=more)
    return problem(409, "Conflict", str(error))


@lru_cache(maxsize=_REFUSALS_KEPT)
def _refusal(decision: Decision, detail: str) -> HttpReply:
    """Return the reply to a refusal. Cached: an account over its limit gets thousands of them."""
    members = details(Judgement(decision, ()))
    if detail:
        members["detail"] = detail
    reason = decision.reason
    seconds = retry_after_s(decision)
    wait = ((b"retry-after", b"%d" % seconds),) if seconds > 0 else ()
    status = 503 if reason is None else reason.http_status
    return HttpReply(status, json_bytes(members), PROBLEM, wait)


def printable(value: object) -> str:
    """A value as a problem tells it."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."


def unauthorized(detail: str, remedy: str, challenge: tuple[bytes, bytes]) -> HttpReply:
    """The 401 that asks for a name: what is wrong, and what to do."""
    more = {"remedy": remedy}
    return problem(401, "Unauthorized", detail, headers=(challenge,), more=more)
