"""Envoy's rate-limit service as methods: bytes to an request, an response to bytes.

An answer that lets a request pass may carry a mark for the upstream (`ANSWERED`). Where Envoy fails
open because nobody answered there is none, and a filter behind it can tell.

What is malformed is INVALID_ARGUMENT with the field's path. Two things that can be asked only by
mistake end with UNKNOWN and the words that clients of this protocol know. Everything else that the
service raises is `call.status_of`'s to translate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.checks import (
    MaybeAwaitable,
    MeshRequest,
    MeshResponse,
    RateLimits,
    is_unmatched_mesh,
)
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.grpc.methods import GrpcError, GrpcStatus, UnaryMethod
from sluicegate.doors.headers import NO_RULE, RULE
from sluicegate.wire.mesh_messages import (
    MESH_BOUNDS,
    MeshBounds,
    encode_mark,
    encode_mesh_response,
    parse_mesh_request,
)

SHOULD_RATE_LIMIT: Final = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

ANSWERED: Final = ("x-sluicegate-answered", "1")
UNMATCHED: Final = (RULE, NO_RULE)  # beside it, where no descriptor has a rule
NO_DOMAIN: Final = "rate limit domain must not be empty"
NO_DESCRIPTORS: Final = "rate limit descriptor list must not be empty"


@final
class MeshServicer:
    """Answers Envoy's one question."""

    __slots__ = ("bounds", "mark", "mark_unmatched", "service")

    def __init__(
        self, service: RateLimits, bounds: MeshBounds = MESH_BOUNDS, *, marks: bool = False
    ) -> None:
        self.service = service
        self.bounds = bounds
        self.mark = encode_mark([ANSWERED]) if marks else b""
        self.mark_unmatched = encode_mark([ANSWERED, UNMATCHED]) if marks else b""

    @property
    def unary(self) -> Mapping[str, UnaryMethod]:
        """The methods for `Methods.unary`."""
        return {SHOULD_RATE_LIMIT: self.should_rate_limit}

    @property
    def grants(self) -> Mapping[str, Grant]:
        """What the methods take, for `Methods.grants`."""
        return {SHOULD_RATE_LIMIT: Grant.CHECK}

    def should_rate_limit(self, message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
        """RateLimitRequest to RateLimitResponse; at once if the service answers at once."""
        request = parse_mesh_request(message, self.bounds)
        try:
            response = self.service.should_rate_limit(request, by)
        except BadValue as error:
            raise known_error(request, error) from None
        if isinstance(response, MeshResponse):
            return self._encode(response)
        return self._later(request, response)

    async def _later(self, request: MeshRequest, response: Awaitable[MeshResponse]) -> bytes:
        try:
            return self._encode(await response)
        except BadValue as error:
            raise known_error(request, error) from None

    def _encode(self, response: MeshResponse) -> bytes:
        unmatched = is_unmatched_mesh(response)
        return encode_mesh_response(response, self.mark_unmatched if unmatched else self.mark)


def known_error(request: MeshRequest, error: BadValue) -> BadValue | GrpcError:
    """The service's complaint, in the words that clients of this protocol know if they know it."""
    if error.field == "domain" and not request.domain:
        return GrpcError(GrpcStatus.UNKNOWN, NO_DOMAIN)
    if error.field == "descriptors" and not request.descriptors:
        return GrpcError(GrpcStatus.UNKNOWN, NO_DESCRIPTORS)
    return error
