"""The peer of our gRPC door: the same methods on grpcio's asyncio server.

Bytes in, bytes out, no serializers. It is the oracle of our own server in tests too: status,
message and bytes of a call must be the same from both. Run as a program, it is the rate-limit
service with one more port, where grpcio listens instead of our HTTP/2:

    python -m benchmarks.grpcio_server HOST:PORT [FLAGS OF sluicegate limiter]
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NoReturn, final

import grpc
import grpc.aio

from sluicegate.apps.limiter.app import LimiterApp
from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.doors.grpc.calls import GrpcCounts
from sluicegate.doors.grpc.mesh import MeshServicer
from sluicegate.doors.grpc.methods import (
    CallMetadata,
    Field,
    GrpcError,
    GrpcStatus,
    MetadataMethod,
    Methods,
    StreamMethod,
    UnaryMethod,
    metadata_of,
    status_of,
)
from sluicegate.doors.grpc.rate_limiter import RateLimiterServicer
from sluicegate.doors.grpc.route import NO_TIMEOUT, NOBODY, UNAUTHENTICATED, identify
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.listener import new_loop
from sluicegate.doors.tls import NAMES_MAX
from sluicegate.policies.access import OpenAccess
from sluicegate.service import lifecycle
from sluicegate.service.bounds import grpc_settings
from sluicegate.service.listeners import Listeners
from sluicegate.service.settings import settings_from

_log: Final = logging.getLogger("sluicegate.grpc")
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_US: Final = 1_000_000
# Of a certificate's names those that `doors.tls.names_in` takes: no address of mail or machine.
_NAMES: Final = ("x509_common_name", "peer_dns", "peer_uri")


@final
class GrpcioServer(grpc.GenericRpcHandler):
    """A server of `methods`. Belongs to one loop."""

    def __init__(
        self, methods: Methods, access: Access, settings: GrpcSettings | None = None
    ) -> None:
        settings = GrpcSettings() if settings is None else settings
        self._methods = methods
        self._access = access
        self.counts = GrpcCounts()
        self._server = grpc.aio.server(
            handlers=[self],
            options=[
                ("grpc.max_receive_message_length", settings.message_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", settings.h2.streams_max),
                ("grpc.max_metadata_size", settings.h2.header_list_bytes_max),
                ("grpc.so_reuseport", 1),
            ],
        )

    async def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen at `host:port`; the port. Raises `Unavailable` where it cannot."""
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise Unavailable(address, str(error)) from error
        await self._server.start()
        return port

    async def drain(self, grace_s: float) -> None:
        """Take no more, and let what is under way finish within `grace_s`."""
        await self._server.stop(grace_s)

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The method of a call, as grpcio wants it."""
        path = handler_call_details.method
        unary = self._methods.unary.get(path)
        if unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(path, unary))
        metadata = self._methods.with_metadata.get(path)
        if metadata is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary_with_metadata(path, metadata))
        stream = self._methods.streams.get(path)
        if stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._stream(path, stream))
        return grpc.stream_stream_rpc_method_handler(_no_method(path))

    def _unary(self, path: str, method: UnaryMethod) -> Any:
        async def call(message: bytes, context: Any) -> bytes:
            by = await self._identify(path, context)
            self.counts.calls += 1
            try:
                answer = method(message, by)
                if isinstance(answer, bytes):
                    return answer
                return await answer
            except Exception as error:
                failure = error
            return await self._end(context, failure)

        return call

    def _unary_with_metadata(self, path: str, method: MetadataMethod) -> Any:
        async def call(message: bytes, context: Any) -> bytes:
            # It tells no word of when the call began: what is left is all that is known.
            left_s = context.time_remaining()
            left_us = NO_TIMEOUT if left_s is None else max(int(left_s * _US), 0)
            metadata = CallMetadata(_metadata(context), left_us, 0)

            def unary(message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
                return method(message, by, metadata)

            answer: bytes = await self._unary(path, unary)(message, context)
            return answer

        return call

    def _stream(self, path: str, method: StreamMethod) -> Any:
        async def call(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            by = await self._identify(path, context)
            self.counts.calls += 1
            try:
                async for answer in method(messages, by):
                    yield answer
            except Exception as error:
                failure = error
            else:
                return
            await self._end(context, failure)

        return call

    async def _identify(self, path: str, context: Any) -> Identity:
        if path in self._methods.open:
            return NOBODY
        shown = [value for key, value in _metadata(context) if key == b"authorization"]
        identity = identify(shown, self._access, _names(context.auth_context()))
        if identity is None:
            return await self._end(context, GrpcError(GrpcStatus.UNAUTHENTICATED, UNAUTHENTICATED))
        return identity

    async def _end(self, context: Any, error: Exception) -> NoReturn:
        self.counts.failed += 1
        if not isinstance(error, SluicegateError):
            _log.error("a method failed", exc_info=error)
        status, message = status_of(error)
        metadata = [(key.decode(), value.decode("latin-1")) for key, value in metadata_of(error)]
        await context.abort(_CODES[int(status)], message, tuple(metadata))
        raise AssertionError("abort raises")


def _no_method(path: str) -> Any:
    async def call(_messages: AsyncIterator[bytes], context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"there is no method {path}")

    return call


def _metadata(context: Any) -> list[Field]:
    return [
        (key.encode("latin-1"), value.encode("latin-1") if isinstance(value, str) else value)
        for key, value in context.invocation_metadata() or ()
    ]


def _names(found: Any) -> Sequence[str]:
    names = [name.decode("latin-1") for kind in _NAMES for name in found.get(kind, ())]
    return tuple(dict.fromkeys(names))[:NAMES_MAX]


@final
class _Limiter:
    """One worker of the rate-limit service, with grpcio listening at `address`."""

    def __init__(self, address: str, app: LimiterApp) -> None:
        service = app.service
        methods = Methods(
            {**MeshServicer(service).unary, **RateLimiterServicer(service).unary}, {}, frozenset()
        )
        self._address = address
        self._app = app
        self._listeners = Listeners(app)
        self._server = GrpcioServer(methods, OpenAccess(), grpc_settings(app.settings))

    async def open(self) -> str:
        """Listen."""
        await self._server.start(self._address)
        self._listeners.open()
        return f"grpcio is ready on {self._address}"

    def reload(self) -> None:
        """Keep what was read at the start."""

    def leave(self) -> None:
        """Report not ready."""
        self._app.draining = True
        self._listeners.leave()

    async def close(self, grace_s: float) -> None:
        """Finish what is under way within `grace_s`."""
        await self._server.drain(grace_s)
        await self._listeners.close(grace_s)


async def _serve(address: str, settings: LimiterSettings) -> None:
    app = LimiterApp(settings)
    try:
        await app.start()
        await lifecycle.serve(_Limiter(address, app), lambda: settings, print, _log)
    finally:
        await app.end()


def main() -> None:
    """Serve until told to end."""
    settings = settings_from(LimiterSettings, *sys.argv[2:])
    logging.basicConfig(level=settings.log.upper())
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(sys.argv[1], settings))


if __name__ == "__main__":
    main()
