"""Doors: what speaks for one worker of the dispatcher, a door for each language."""

from __future__ import annotations

from typing import Final, final

from sluicegate import __version__
from sluicegate.apps.kv.assembly import Assembly
from sluicegate.apps.kv.desk import Desk
from sluicegate.apps.kv.settings import Settings
from sluicegate.contracts.access import Access
from sluicegate.doors.grpc.health import GrpcHealth
from sluicegate.doors.grpc.key_values import KeyValuesServicer
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.reflection import Reflection, files_of
from sluicegate.doors.http.kv.handler import KvHttp
from sluicegate.doors.http.kv.settings import KvHttpSettings
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.protos import KEY_VALUES as KEY_VALUES_PROTO
from sluicegate.protos import descriptor_set
from sluicegate.service.bounds import grpc_settings, http_settings
from sluicegate.service.listeners import Doorway
from sluicegate.service.siblings import Peers
from sluicegate.service.status import Overview
from sluicegate.wire.key_values_messages import KvBounds

SERVICES: Final = ("", "sluicegate.v1.KeyValues")  # that gRPC health is asked for
PART_BYTES_MAX: Final = 8 << 20
COMMAND_BYTES_BESIDE: Final = 64 << 10  # of a command, beside its longest word
REPLIES_OWED_MAX: Final = 128  # values may be long, and who does not read is owed them


@final
class Doors:
    """All that listens in one worker."""

    def __init__(self, settings: Settings, assembly: Assembly, folder: str, worker: int) -> None:
        self._settings = settings
        self._assembly = assembly
        self._folder = folder
        self._worker = worker
        self._doorway = Doorway(settings, "kv")
        access = self._doorway.access
        assembly.callers.know(access.identities)
        self._health = GrpcHealth(assembly.serving, SERVICES)
        self._bounds = KvBounds(value_bytes_max=settings.value_bytes_max)
        self._grpc = GrpcDoor(self._methods(), access, grpc_settings(settings))
        self._resp = RespDoor(
            assembly.dispatcher,
            access,
            _resp_settings(settings),
            KEY_VALUES,
            assembly.clock,
        )

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
            self._assembly.callers.know(self._doorway.access.identities)
        self._doorway.reload_certificates()

    # Inside.

    def _desk(self, *, alone: bool) -> Desk:
        assembly = self._assembly
        overview = Overview(
            "kv",
            __version__,
            parts={**assembly.parts(), "connections": self._stats},
            families=[assembly.families, self._doorway.families],
            not_ready=assembly.not_ready,
            peers=Peers(self._folder, self._worker, self._settings.workers),
            alone=alone,
        )
        return Desk(overview, hot=assembly.hot_board, engine=assembly.engine)

    def _methods(self) -> Methods:
        assembly = self._assembly
        servicer = KeyValuesServicer(assembly.dispatcher, assembly.clock, self._bounds)
        reflection = Reflection(files_of(descriptor_set(KEY_VALUES_PROTO)))
        return Methods(
            self._health.unary,
            {**reflection.streams, **self._health.streams},
            self._health.open,
            with_metadata=servicer.with_metadata,
        )

    def _http(self, access: Access, hosts: frozenset[str] | None, *, alone: bool) -> HttpDoor:
        settings, assembly = self._settings, self._assembly
        routes = KvHttp(
            assembly.dispatcher,
            self._desk(alone=alone),
            access,
            assembly.clock,
            KvHttpSettings(
                hosts=hosts,
                metrics_open=settings.metrics_open,
                quota_status=settings.quota_status,
                bounds=self._bounds,
                part_bytes_max=min(PART_BYTES_MAX, settings.message_bytes_max),
                version=__version__,
            ),
        )
        return HttpDoor(routes.handle, assembly.clock, http_settings(settings))

    def _stats(self) -> object:
        return {
            "listener": self._doorway.stats(),
            "grpc_streams": self._grpc.streams,
            "resp_commands": self._resp.commands,
        }


def _resp_settings(settings: Settings) -> RespSettings:
    bulk = max(settings.value_bytes_max, PART_BYTES_MAX)
    command = max(settings.message_bytes_max, bulk) + COMMAND_BYTES_BESIDE
    return RespSettings(
        command_bytes_max=command,
        bulk_bytes_max=bulk,
        unread_bytes_max=2 * command,
        replies_owed_max=REPLIES_OWED_MAX,
        version=__version__,
    )
