"""Doors: what speaks for one worker of the limiter, a door for each language."""

from __future__ import annotations

from typing import final

from sluicegate import __version__
from sluicegate.apps.limiter.assembly import Assembly
from sluicegate.apps.limiter.desk import LimiterDesk
from sluicegate.apps.limiter.settings import Settings
from sluicegate.contracts.access import Access
from sluicegate.doors.grpc.health import GrpcHealth
from sluicegate.doors.grpc.mesh import MeshServicer
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
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
        self._doorway = Doorway(settings, "limiter")
        access = self._doorway.access
        self._health = GrpcHealth(assembly.serving)
        self._grpc = GrpcDoor(self._methods(), access, grpc_settings(settings))
        self._resp = RespDoor(assembly.service, access, _resp_settings(settings))

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return self._doorway.addresses

    async def open(self) -> None:
        """Listen."""
        self._doorway.open(self._http, self._resp, self._grpc)
        self._doorway.open_to_peers(self._http, self._folder, self._worker)

    async def close(self, grace_s: float) -> None:
        """Take nothing more, let what is under way finish within the grace, and end."""
        self._health.drain()
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
