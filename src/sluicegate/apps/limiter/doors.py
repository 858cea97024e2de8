"""Doors: what speaks for one worker of the limiter, a door for each language."""

from __future__ import annotations

from typing import Any, final

from sluicegate import __version__
from sluicegate.apps.limiter.assembly import Assembly
from sluicegate.apps.limiter.desk import LimiterDesk
from sluicegate.apps.limiter.settings import Settings
from sluicegate.contracts.access import Access
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.binding import address_of
from sluicegate.doors.grpc.call import Methods
from sluicegate.doors.grpc.health import Health
from sluicegate.doors.grpc.mesh import MeshServicer
from sluicegate.doors.grpc.native import GrpcDoor
from sluicegate.doors.grpc.rate_limiter import RateLimiterServicer
from sluicegate.doors.grpc.reflection import Reflection, files_of
from sluicegate.doors.http.limiter.handler import LimiterHttp, LimiterHttpSettings
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.protos import MESH, SLUICEGATE, descriptor_set
from sluicegate.service.bounds import grpc_settings, http_settings
from sluicegate.service.listeners import Doorway
from sluicegate.service.siblings import Peers
from sluicegate.service.status import Overview


@final
class Doors:
    """All that listens in one worker."""

    def __init__(self, settings: Settings, assembly: Assembly, folder: str, worker: int) -> None:
        self._settings = settings
        self._assembly = assembly
        self._folder = folder
        self._worker = worker
        grpcio = settings.grpc == "grpcio"
        also = [address_of(settings.grpc_listen, field="--grpc-listen")] if grpcio else []
        self._doorway = Doorway(settings, "limiter", also)
        access = self._doorway.access
        self._health = Health(assembly.serving)
        self._grpc = GrpcDoor(self._methods(), access, grpc_settings(settings))
        self._resp = RespDoor(assembly.service, access, _resp_settings(settings))
        self._grpcio: Any = None
        self.grpc_address = ""

    @property
    def addresses(self) -> list[str]:
        """Where it listens, but for grpcio."""
        return self._doorway.addresses

    async def open(self) -> None:
        """Listen."""
        native = self._settings.grpc == "native"
        self._doorway.open(self._http, self._resp, self._grpc if native else None)
        self._doorway.open_to_peers(self._http, self._folder, self._worker)
        if not native:
            await self._open_grpcio()

    async def close(self, grace_s: float) -> None:
        """Take nothing more, let what is under way finish within the grace, and end."""
        self._health.drain()
        if self._grpcio is not None:
            grpcio, self._grpcio = self._grpcio, None
            await grpcio.drain(grace_s)
        await self._doorway.close(grace_s)

    def reload(self) -> None:
        """Read callers and certificates again."""
        if self._doorway.reload_callers():
            self._grpc.forget()
            self._resp.forget()
        self._doorway.reload_certificates()

    # Inside.

    def _desk(self, *, alone: bool) -> LimiterDesk:
        assembly = self._assembly
        peers = Peers(self._folder, self._worker, self._settings.workers)
        overview = Overview(
            "limiter",
            __version__,
            parts={**assembly.parts(), "connections": self._stats},
            families=[assembly.families, self._doorway.families],
            not_ready=assembly.not_ready,
            peers=peers,
            alone=alone,
        )
        return LimiterDesk(overview, rulebook=assembly.rulebook, ring=assembly.ring, peers=peers)

    def _methods(self) -> Methods:
        service = self._assembly.service
        unary = {**MeshServicer(service).unary, **RateLimiterServicer(service).unary}
        reflection = Reflection(
            one for name in (SLUICEGATE, MESH) for one in files_of(descriptor_set(name))
        )
        return Methods(
            {**unary, **self._health.unary},
            {**reflection.streams, **self._health.streams},
            self._health.open,
        )

    def _http(self, access: Access, hosts: frozenset[str] | None, *, alone: bool) -> HttpDoor:
        settings, clock = self._settings, self._assembly.clock
        routes = LimiterHttp(
            self._assembly.service,
            self._desk(alone=alone),
            access,
            clock,
            LimiterHttpSettings(
                hosts=hosts, metrics_open=settings.metrics_open, version=__version__
            ),
        )
        return HttpDoor(routes.handle, clock, http_settings(settings))

    async def _open_grpcio(self) -> None:
        try:
            from sluicegate.doors.grpc.grpcio_server import (  # noqa: PLC0415 - only where it is said
                GrpcioServer,
            )
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("sluicegate"):
                raise
            get = f"the package {error.name} is missing; pip install 'sluicegate[grpc]'"
            raise SluicegateError(f"--grpc grpcio: {get}") from None

        settings = self._settings
        self._grpcio = GrpcioServer(self._methods(), self._doorway.access, grpc_settings(settings))
        address = address_of(settings.grpc_listen, field="--grpc-listen")
        port = await self._grpcio.start(str(address), _grpcio_credentials(settings))
        self.grpc_address = str(address._replace(port=port))

    def _stats(self) -> object:
        return {
            "listener": self._doorway.stats(),
            "grpc_streams": self._grpc.streams,
            "resp_commands": self._resp.commands,
        }


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
