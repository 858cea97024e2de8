"""Doors: the listener of one worker, with a protocol for each language on it.

A second listener, on a socket in a private folder, is for the other workers alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast, final

from headgate import __version__
from headgate.access_file import ReloadedAccess
from headgate.apps.limiter.assembly import Assembly
from headgate.apps.limiter.desk import LimiterDesk
from headgate.apps.limiter.settings import Settings
from headgate.contracts.access import Access
from headgate.contracts.errors import BadValue, HeadgateError
from headgate.doors.binding import Address, address_of, bind, bound_address
from headgate.doors.bounds import ListenerSettings
from headgate.doors.grpc.call import Methods
from headgate.doors.grpc.health import Health
from headgate.doors.grpc.mesh import MeshServicer
from headgate.doors.grpc.native import GrpcDoor
from headgate.doors.grpc.rate_limiter import RateLimiterServicer
from headgate.doors.grpc.reflection import Reflection, files_of
from headgate.doors.http.limiter import LimiterHttp, LimiterHttpSettings
from headgate.doors.http.protocol import HttpDoor
from headgate.doors.http.site import hosts_of
from headgate.doors.listener import Listener, ProtocolFactory
from headgate.doors.resp.protocol import RespDoor
from headgate.doors.resp.settings import RespSettings
from headgate.doors.sniff import Kind
from headgate.listening import (
    check_all_public,
    grpc_settings,
    http_settings,
    listener_families,
    listener_settings,
    name_of,
    tls_of,
)
from headgate.peers import Peers, socket_of
from headgate.policies.access import OpenAccess
from headgate.protos import HEADGATE, MESH, descriptor_set
from headgate.telemetry.prometheus import Family


@final
class Doors:
    """All that listens in one worker."""

    def __init__(self, settings: Settings, assembly: Assembly, folder: str, worker: int) -> None:
        self._settings = settings
        self._assembly = assembly
        self._folder = folder
        self._worker = worker
        self.access = ReloadedAccess(settings.access, settings.token)
        self._wanted = [address_of(one, field="--listen") for one in settings.listen]
        self._check_public(self._wanted)
        self.tls = tls_of(settings)
        self.desk = self._desk(alone=False)
        self.health = Health(assembly.serving)
        self._grpc = GrpcDoor(self._methods(), self.access, grpc_settings(settings))
        self._resp = RespDoor(assembly.service, self.access, _resp_settings(settings))
        self._listener: Listener | None = None
        self._private: Listener | None = None
        self._grpcio: Any = None
        self.grpc_address = ""
        self.addresses: list[str] = []

    async def open(self) -> None:
        """Listen."""
        settings = listener_settings(self._settings)
        # Bound before anything is made, because the HTTP door must know by which names it goes.
        sockets = [one for wanted in self._wanted for one in bind(wanted, settings)]
        bound = [bound_address(one) for one in sockets]
        hosts = hosts_of(bound, self._settings.hosts)
        self._listener = Listener(sockets, self._protocols(hosts), settings=settings, tls=self.tls)
        self._listener.start()
        self.addresses = [str(one) for one in bound]
        if self._folder:
            path = f"unix:{socket_of(self._folder, self._worker)}"
            http = self._http(self._desk(alone=True), OpenAccess(), frozenset({"localhost"}))
            self._private = Listener(
                [path], {Kind.HTTP1: http}, settings=ListenerSettings(unix_mode=0o600)
            )
            self._private.start()
        if self._settings.grpc == "grpcio":
            await self._open_grpcio()

    async def close(self, grace_s: float) -> None:
        """Take nothing more, let what is under way finish within the grace, and end."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self.health.drain()
        if self._grpcio is not None:
            grpcio, self._grpcio = self._grpcio, None
            await grpcio.drain(grace_s)
        try:
            await listener.close(grace_s)
        except asyncio.CancelledError:
            await listener.close(0.0)
            raise
        if self._private is not None:
            await self._private.close(0.0)

    def reload(self) -> None:
        """Read callers and certificates again."""
        if self.access.reload():
            self._grpc.forget()
            self._resp.forget()
        if self.tls is not None:
            self.tls.reload()

    # Inside.

    def _desk(self, *, alone: bool) -> LimiterDesk:
        assembly = self._assembly
        return LimiterDesk(
            parts={**assembly.parts(), "connections": self._stats},
            families=[assembly.families, self._families],
            rulebook=assembly.rulebook,
            not_ready=assembly.not_ready,
            ring=assembly.ring,
            peers=Peers(self._folder, self._worker, self._settings.workers),
            alone=alone,
        )

    def _check_public(self, addresses: Iterable[Address]) -> None:
        settings = self._settings
        wanted = [*addresses]
        if settings.grpc == "grpcio":
            wanted.append(address_of(settings.grpc_listen, field="--grpc-listen"))
        check_all_public(settings, wanted)

    def _methods(self) -> Methods:
        service = self._assembly.service
        unary = {**MeshServicer(service).unary, **RateLimiterServicer(service).unary}
        reflection = Reflection(
            one for name in (HEADGATE, MESH) for one in files_of(descriptor_set(name))
        )
        return Methods(
            {**unary, **self.health.unary},
            {**reflection.streams, **self.health.streams},
            self.health.open,
        )

    def _protocols(self, hosts: frozenset[str] | None) -> dict[Kind, ProtocolFactory]:
        protocols: dict[Kind, ProtocolFactory] = {
            Kind.RESP: lambda peer: self._resp.protocol(name_of(peer), peer.names),
            Kind.HTTP1: self._http(self.desk, self.access, hosts),
        }
        if self._settings.grpc == "native":
            protocols[Kind.HTTP2] = lambda _: cast("asyncio.Protocol", self._grpc())
        return protocols

    def _http(self, desk: LimiterDesk, access: Access, hosts: frozenset[str] | None) -> HttpDoor:
        settings, clock = self._settings, self._assembly.clock
        routes = LimiterHttp(
            self._assembly.service,
            desk,
            access,
            clock,
            LimiterHttpSettings(
                hosts=hosts, metrics_open=settings.metrics_open, version=__version__
            ),
        )
        return HttpDoor(routes.handle, clock, http_settings(settings))

    async def _open_grpcio(self) -> None:
        try:
            from headgate.doors.grpc.grpcio_server import (  # noqa: PLC0415 - only where it is said
                GrpcioServer,
            )
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("headgate"):
                raise
            get = f"the package {error.name} is missing; pip install 'headgate[grpc]'"
            raise HeadgateError(f"--grpc grpcio: {get}") from None

        settings = self._settings
        self._grpcio = GrpcioServer(self._methods(), self.access, grpc_settings(settings))
        address = address_of(settings.grpc_listen, field="--grpc-listen")
        port = await self._grpcio.start(str(address), _grpcio_credentials(settings))
        self.grpc_address = str(address._replace(port=port))

    # What there is to see.

    def _stats(self) -> object:
        return {
            "listener": None if self._listener is None else self._listener.stats(),
            "grpc_streams": self._grpc.streams,
            "resp_commands": self._resp.commands,
        }

    def _families(self) -> Iterable[Family]:
        return () if self._listener is None else listener_families(self._listener, "limiter")


def _resp_settings(settings: Settings) -> RespSettings:
    most = settings.message_bytes_max
    return RespSettings(
        command_bytes_max=most, bulk_bytes_max=min(most, 64 << 10), version=__version__
    )


def _grpcio_credentials(settings: Settings) -> Any:
    if not settings.tls_cert:
        return None
    import grpc  # noqa: PLC0415 - only with --grpc grpcio

    def read(path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise BadValue("--tls-cert", path, f"it cannot be read: {error.strerror}") from None

    ca = read(settings.tls_client_ca) if settings.tls_client_ca else None
    return grpc.ssl_server_credentials(
        [(read(settings.tls_key), read(settings.tls_cert))],
        root_certificates=ca,
        require_client_auth=ca is not None and not settings.tls_client_optional,
    )
