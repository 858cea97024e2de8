"""Route: what a request is by its head alone: method, caller, timeout, compression.

Made once for many requests with the same head. A head that cannot be served makes a route with its
refusal ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.access import Access, Grant, Identity, TableGrant
from sluicegate.doors.grpc.framing import timeout_us, trailers_only
from sluicegate.doors.grpc.methods import (
    Field,
    GrpcStatus,
    MetadataMethod,
    Methods,
    StreamMethod,
    UnaryMethod,
)
from sluicegate.wire.h2.blocks import HeaderBlock, block
from sluicegate.wire.h2.fields import RequestHead

NOBODY: Final = Identity("", ())
NO_TIMEOUT: Final = -1
_BEARER: Final = b"bearer "
_GRPC_KINDS: Final = frozenset((b"application/grpc", b"application/grpc+proto"))

UNAUTHENTICATED: Final = (
    "the caller is not known here; "
    "send metadata authorization: Bearer TOKEN, or a client certificate"
)
WHY_415: Final = b"this port serves gRPC; send content-type application/grpc\n"
WHY_405: Final = b"this port serves gRPC; send POST\n"
WHY_431: Final = b"the headers are too large\n"


@final
class GrpcRoute:
    """What to do with a request. `refusal` ends it as gRPC, `plain` as HTTP with a body.

    `metadata` is kept where the method takes it. `changes` is a method that writes. `open` is a
    method that needs no identity.
    """

    __slots__ = (
        "changes",
        "gzip",
        "identity",
        "message_bytes_max",
        "metadata",
        "of_stranger",
        "open",
        "plain",
        "refusal",
        "stream",
        "timeout_us",
        "unary",
        "why",
        "with_metadata",
    )

    def __init__(self) -> None:
        self.unary: UnaryMethod | None = None
        self.with_metadata: MetadataMethod | None = None
        self.stream: StreamMethod | None = None
        self.metadata: list[Field] = []
        self.identity = NOBODY
        self.timeout_us = NO_TIMEOUT
        self.gzip = False
        self.open = False
        self.changes = False
        self.of_stranger = False  # refused since nobody knows who asks
        self.message_bytes_max = 0
        self.refusal: HeaderBlock | None = None
        self.plain: HeaderBlock | None = None
        self.why = b""


def _plain(status: bytes, body: bytes, *more: tuple[bytes, bytes]) -> HeaderBlock:
    fields = [
        (b":status", status),
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(body)),
    ]
    return block([*fields, *more])


_415: Final = _plain(b"415", WHY_415)
_405: Final = _plain(b"405", WHY_405, (b"allow", b"POST"))
_431: Final = _plain(b"431", WHY_431)


def find_route(
    head: RequestHead, methods: Methods, access: Access, names: Sequence[str]
) -> GrpcRoute:
    """Return the route of a request; `names` are those of the peer's verified certificate.

    Raises `Forbidden` for a caller that may not call the method at all.
    """
    route = GrpcRoute()
    if head.method != b"POST":
        return _refuse_plainly(route, _405, WHY_405)
    if not _is_grpc(head):
        return _refuse_plainly(route, _415, WHY_415)
    path = head.path.decode("latin-1")
    unary = methods.unary.get(path)
    with_metadata = methods.with_metadata.get(path)
    stream = methods.streams.get(path)
    if unary is None and with_metadata is None and stream is None:
        return _refuse_route(route, GrpcStatus.UNIMPLEMENTED, f"there is no method {path}")
    packed = head.values(b"grpc-encoding")
    if packed and packed != [b"identity"]:
        if packed != [b"gzip"]:
            kinds = b",".join(packed).decode("latin-1")
            return _refuse_route(
                route, GrpcStatus.UNIMPLEMENTED, f"messages packed as {kinds} are not read"
            )
        route.gzip = True
    timeouts = head.values(b"grpc-timeout")
    if timeouts:
        route.timeout_us = timeout_us(timeouts[0])
        if route.timeout_us < 0 or len(timeouts) > 1:
            return _refuse_route(route, GrpcStatus.INTERNAL, "the grpc-timeout is malformed")
    if path in methods.open:
        route.open = True
    else:
        identity = _identify(head, access, names)
        if identity is None:
            route.of_stranger = True
            return _refuse_route(route, GrpcStatus.UNAUTHENTICATED, UNAUTHENTICATED)
        grant = methods.grants.get(path)
        _require(identity, grant)
        route.changes = grant in (TableGrant.WRITE, TableGrant.BULK)
        route.identity = identity
    route.unary = unary
    route.with_metadata = with_metadata
    route.stream = stream
    if with_metadata is not None:
        route.metadata = head.fields
    return route


def refuse(status: GrpcStatus, message: str) -> GrpcRoute:
    """Return a route that ends with this status, whatever the body is."""
    return _refuse_route(GrpcRoute(), status, message)


def refuse_oversized() -> GrpcRoute:
    """Return the route of a request with too many headers."""
    return _refuse_plainly(GrpcRoute(), _431, WHY_431)


def identify(
    authorization: Sequence[bytes], access: Access, names: Sequence[str]
) -> Identity | None:
    """Return the caller: by its token, else by its certificate, else the anonymous one.

    A token that is nobody's is refused; it never falls back to the anonymous identity.
    """
    if authorization:
        value = authorization[0]
        if len(authorization) > 1 or value[: len(_BEARER)].lower() != _BEARER:
            return None
        return access.by_token(value[len(_BEARER) :].strip().decode("latin-1"))
    if names:
        identity = access.by_certificate(names)
        if identity is not None:
            return identity
    return access.anonymous


def _identify(head: RequestHead, access: Access, names: Sequence[str]) -> Identity | None:
    return identify(head.values(b"authorization"), access, names)


def _require(identity: Identity, grant: Grant | TableGrant | None) -> None:
    if isinstance(grant, TableGrant):
        identity.require_anywhere(grant)
    elif grant is not None:
        identity.require(grant)


def _is_grpc(head: RequestHead) -> bool:
    kinds = head.values(b"content-type")
    if len(kinds) != 1:
        return False
    return kinds[0].partition(b";")[0].strip().lower() in _GRPC_KINDS


def _refuse_route(route: GrpcRoute, status: GrpcStatus, message: str) -> GrpcRoute:
    route.refusal = trailers_only(status, message)
    return route


def _refuse_plainly(route: GrpcRoute, head: HeaderBlock, why: bytes) -> GrpcRoute:
    route.plain = head
    route.why = why
    return route
