"""gRPC over a group of hosts: one channel to all, each attempt to the host that the client chose.

    channel = host_channel(client, "search", grpc.insecure_channel, idempotent=["/T/Get"])
    channel = async_host_channel(client, "search", grpc.aio.insecure_channel, idempotent=["/T/Get"])

gRPC chooses among addresses below its interceptors, where nobody can see which one a call went to.
So here each host has a channel of its own, which `connect` opens at the first call to it. With TLS
it names the service as well, for a host is an address:

    lambda host: grpc.secure_channel(host, trust, [("grpc.ssl_target_name_override", NAME)])

A unary call is judged as by the interceptors of `grpc.py`, with the breaker and the throttle of its
host; the next attempt goes to another one. A stream is not judged: it goes to the host that the
group would choose now, and what becomes of it tells the group nothing.

Bounds: a channel for each host. Above `SPARE_MAX` more than the group has hosts, those that have
not been used for longest are closed, what they still carry included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, MissingPackage, Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.resilience.client import grpc as doors
from sluicegate.resilience.client import grpc_results
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.hosts.group import HostGroup

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "grpc", "grpc") from None

SPARE_MAX: Final = 16
_FRONT: Final = "127.0.0.1:1"  # nothing is ever sent to it

Connect: TypeAlias = Callable[[str], Any]


def host_channel(
    client: ResilientClient, backend: str, connect: Connect, *, idempotent: Collection[str] = ()
) -> Any:
    """Return a channel to the hosts of the client; close it like any other."""
    channels = _Channels(client, backend, connect)
    interceptor = doors.ResilientInterceptor(client, backend, idempotent=idempotent, routed=True)
    return grpc.intercept_channel(_HostChannel(channels), interceptor)


def async_host_channel(
    client: ResilientClient, backend: str, connect: Connect, *, idempotent: Collection[str] = ()
) -> Any:
    """The same for asyncio."""
    channels = _Channels(client, backend, connect)
    found = doors.AsyncResilientInterceptor(client, backend, idempotent=idempotent, routed=True)
    return _AsyncHostChannel(channels, found.all)


@final
class _Channels:
    """The channels to the hosts, opened as they are asked for; the last used stands last."""

    def __init__(self, client: ResilientClient, backend: str, connect: Connect) -> None:
        if client.hosts is None:
            raise BadValue("client.hosts", None, "give the client a HostGroup, or use a channel")
        self._client = client
        self._hosts: HostGroup = client.hosts
        self._backend = backend
        self._connect = connect
        self._open: dict[str, Any] = {}

    def at(self, metadata: grpc_results.Metadata) -> tuple[Any, list[tuple[str, Any]], list[Any]]:
        """Return the channel that a call goes by, its metadata without that, and who is to go."""
        have = list(metadata or ())
        named = [str(value) for name, value in have if name == doors.HOST_FIELD]
        channel, gone = self.to(named[-1] if named else self.choose())
        return channel, [pair for pair in have if pair[0] != doors.HOST_FIELD], gone

    def to(self, host: str) -> tuple[Any, list[Any]]:
        """Return the channel to a host, and those that are to be closed for it."""
        with self._hosts.lock:
            channel = self._open.pop(host, None)
            if channel is None:
                channel = self._connect(host)
            self._open[host] = channel
            most = self._hosts.balance.stats().hosts + SPARE_MAX
            gone = [self._open.pop(next(iter(self._open))) for _ in range(len(self._open) - most)]
        return channel, gone

    def choose(self) -> str:
        """Return the host for what is not judged."""
        now_us = self._client.clock.now_us()
        with self._hosts.lock:
            permit = self._hosts.balance.admit(Request(self._backend), now_us, ())
            if not isinstance(permit, Decision):
                permit.end(Outcome.IGNORE, now_us, spent=False)
        if isinstance(permit, Decision):
            raise Refused(permit)
        return permit.host

    def close(self) -> list[Any]:
        """Return all that are to be closed."""
        with self._hosts.lock:
            gone = list(self._open.values())
            self._open.clear()
        return gone


@final
class _Routed:
    """One method of all hosts."""

    def __init__(self, channels: _Channels, kind: str, method: str, more: Sequence[Any]) -> None:
        self._channels = channels
        self._kind = kind
        self._method = method
        self._more = more

    def _at(self, metadata: grpc_results.Metadata) -> tuple[Any, list[tuple[str, Any]]]:
        channel, metadata, gone = self._channels.at(metadata)
        for one in gone:
            one.close()
        return getattr(channel, self._kind)(self._method, *self._more), metadata

    def __call__(
        self, request: Any, timeout: Any = None, metadata: Any = None, *a: Any, **k: Any
    ) -> Any:
        call, metadata = self._at(metadata)
        return call(request, timeout, metadata, *a, **k)

    def with_call(self, request: Any, timeout: Any = None, metadata: Any = None, **k: Any) -> Any:
        call, metadata = self._at(metadata)
        return call.with_call(request, timeout, metadata, **k)

    def future(self, request: Any, timeout: Any = None, metadata: Any = None, **k: Any) -> Any:
        call, metadata = self._at(metadata)
        return call.future(request, timeout, metadata, **k)


@final
class _HostChannel(grpc.Channel):
    """All hosts as one channel; `grpc.intercept_channel` stands before it."""

    def __init__(self, channels: _Channels) -> None:
        self._channels = channels
        self._watched: dict[Any, Any] = {}

    def unary_unary(self, method: str, *more: Any) -> Any:
        """Return the method at all hosts."""
        return _Routed(self._channels, "unary_unary", method, more)

    def unary_stream(self, method: str, *more: Any) -> Any:
        """The same for a stream of answers."""
        return _Routed(self._channels, "unary_stream", method, more)

    def stream_unary(self, method: str, *more: Any) -> Any:
        """The same for a stream of requests."""
        return _Routed(self._channels, "stream_unary", method, more)

    def stream_stream(self, method: str, *more: Any) -> Any:
        """The same for both."""
        return _Routed(self._channels, "stream_stream", method, more)

    def subscribe(self, callback: Any, try_to_connect: Any = False) -> None:
        """Watch the host that the group would choose now."""
        channel = self._watched[callback] = self._channels.at(None)[0]
        channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        """End that."""
        channel = self._watched.pop(callback, None)
        if channel is not None:
            channel.unsubscribe(callback)

    def close(self) -> None:
        """Close the channels to all hosts."""
        for one in self._channels.close():
            one.close()

    def __enter__(self) -> _HostChannel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _AsyncRoute:
    """The last interceptor: the call goes on by the channel of its host, and not by the front."""

    kind = ""

    def __init__(self, channels: _Channels, codecs: dict[tuple[str, str], Sequence[Any]]) -> None:
        self._channels = channels
        self._codecs = codecs

    async def _send(
        self,
        continuation: Callable[[Any, Any], Awaitable[Any]],
        client_call_details: Any,
        request: Any,
    ) -> Any:
        details = client_call_details
        channel, metadata, gone = self._channels.at(details.metadata)
        for one in gone:
            await one.close()
        method = doors.text_of(details.method)
        call = getattr(channel, self.kind)(method, *self._codecs[self.kind, method])
        return call(
            request,
            timeout=details.timeout,
            metadata=grpc.aio.Metadata(*metadata),
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
        )


class _UnaryUnary(_AsyncRoute, grpc.aio.UnaryUnaryClientInterceptor):
    kind = "unary_unary"
    intercept_unary_unary: Any = _AsyncRoute._send


class _UnaryStream(_AsyncRoute, grpc.aio.UnaryStreamClientInterceptor):
    kind = "unary_stream"
    intercept_unary_stream: Any = _AsyncRoute._send


class _StreamUnary(_AsyncRoute, grpc.aio.StreamUnaryClientInterceptor):
    kind = "stream_unary"
    intercept_stream_unary: Any = _AsyncRoute._send


class _StreamStream(_AsyncRoute, grpc.aio.StreamStreamClientInterceptor):
    kind = "stream_stream"
    intercept_stream_stream: Any = _AsyncRoute._send


@final
class _AsyncHostChannel(grpc.aio.Channel):
    """All hosts as one channel: gRPC's own calls, by a channel that never connects itself."""

    def __init__(self, channels: _Channels, interceptors: Sequence[Any]) -> None:
        self._channels = channels
        self._codecs: dict[tuple[str, str], Sequence[Any]] = {}
        routes = [
            one(channels, self._codecs)
            for one in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
        ]
        self._front = grpc.aio.insecure_channel(_FRONT, interceptors=[*interceptors, *routes])

    def _method(self, kind: str, method: str, more: Sequence[Any]) -> Any:
        self._codecs[kind, method] = more
        return getattr(self._front, kind)(method, *more)

    def unary_unary(self, method: str, *more: Any) -> Any:
        """Return the method at all hosts."""
        return self._method("unary_unary", method, more)

    def unary_stream(self, method: str, *more: Any) -> Any:
        """The same for a stream of answers."""
        return self._method("unary_stream", method, more)

    def stream_unary(self, method: str, *more: Any) -> Any:
        """The same for a stream of requests."""
        return self._method("stream_unary", method, more)

    def stream_stream(self, method: str, *more: Any) -> Any:
        """The same for both."""
        return self._method("stream_stream", method, more)

    def get_state(self, try_to_connect: bool = False) -> Any:
        """Of the host that the group would choose now."""
        return self._channels.at(None)[0].get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: Any) -> None:
        """Of the host that the group would choose now."""
        await self._channels.at(None)[0].wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until the host that the group would choose now can be called."""
        await self._channels.at(None)[0].channel_ready()

    async def close(self, grace: float | None = None) -> None:
        """Close the channels to all hosts."""
        await self._front.close(grace)
        for one in self._channels.close():
            await one.close(grace)

    async def __aenter__(self) -> _AsyncHostChannel:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
