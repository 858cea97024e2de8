"""Doors: the listener of one worker, with a protocol for each language on it.

A second listener, on a socket in a private folder, is for the other workers alone.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast, final

from headgate import __version__
from headgate.access_file import ReloadedAccess
from headgate.apps.kv.assembly import Assembly
from headgate.apps.kv.desk import Desk
from headgate.apps.kv.settings import Settings
from headgate.contracts.access import Access
from headgate.doors.binding import address_of, bind, bound_address
from headgate.doors.bounds import ListenerSettings
from headgate.doors.grpc.call import Methods
from headgate.doors.grpc.health import Health
from headgate.doors.grpc.key_values import KeyValuesServicer
from headgate.doors.grpc.native import GrpcDoor
from headgate.doors.grpc.reflection import Reflection, files_of
from headgate.doors.http.kv import KvHttp
from headgate.doors.http.kv_settings import KvHttpSettings
from headgate.doors.http.protocol import HttpDoor
from headgate.doors.http.site import hosts_of
from headgate.doors.listener import Listener, ProtocolFactory
from headgate.doors.resp.kv_commands import KEY_VALUES
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
from headgate.protos import KEY_VALUES as KEY_VALUES_PROTO
from headgate.protos import descriptor_set
from headgate.wire.key_values_messages import KvBounds

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
        self.access = ReloadedAccess(settings.access, settings.token)
        assembly.callers.know(self.access.identities)
        self._wanted = [address_of(one, field="--listen") for one in settings.listen]
        check_all_public(settings, self._wanted)
        self.tls = tls_of(settings)
        self.health = Health(assembly.serving)
        self._bounds = KvBounds(value_bytes_max=settings.value_bytes_max)
        self._grpc = GrpcDoor(self._methods(), self.access, grpc_settings(settings))
        self._resp = RespDoor(
            assembly.dispatcher,
            self.access,
            _resp_settings(settings),
            KEY_VALUES,
            assembly.clock,
        )
        self._listener: Listener | None = None
        self._private: Listener | None = None
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

    async def close(self, grace_s: float) -> None:
        """Take nothing more, let what is under way finish within the grace, and end."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self.health.drain()
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
            self._assembly.callers.know(self.access.identities)
        if self.tls is not None:
            self.tls.reload()

    # Inside.

    def _desk(self, *, alone: bool) -> Desk:
        assembly = self._assembly
        return Desk(
            parts={**assembly.parts(), "connections": self._stats},
            families=[
                assembly.families,
                lambda: () if self._listener is None else listener_families(self._listener, "kv"),
            ],
            hot=assembly.hot_board,
            not_ready=assembly.not_ready,
            engine=assembly.engine,
            peers=Peers(self._folder, self._worker, self._settings.workers),
            alone=alone,
        )

    def _methods(self) -> Methods:
        assembly = self._assembly
        servicer = KeyValuesServicer(assembly.dispatcher, assembly.clock, self._bounds)
        reflection = Reflection(files_of(descriptor_set(KEY_VALUES_PROTO)))
        return Methods(
            self.health.unary,
            {**reflection.streams, **self.health.streams},
            self.health.open,
            told=servicer.told,
        )

    def _protocols(self, hosts: frozenset[str] | None) -> dict[Kind, ProtocolFactory]:
        return {
            Kind.RESP: lambda peer: self._resp.protocol(name_of(peer), peer.names),
            Kind.HTTP1: self._http(self._desk(alone=False), self.access, hosts),
            Kind.HTTP2: lambda _: cast("asyncio.Protocol", self._grpc()),
        }

    def _http(self, desk: Desk, access: Access, hosts: frozenset[str] | None) -> HttpDoor:
        settings, assembly = self._settings, self._assembly
        routes = KvHttp(
            assembly.dispatcher,
            desk,
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
            "listener": None if self._listener is None else self._listener.stats(),
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
