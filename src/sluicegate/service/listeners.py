"""Doorway: where the doors of one worker stand, and who has the key.

All languages share the listeners that the settings name. Where there are several workers, one more
listens on a socket in their private folder, and speaks HTTP to the others alone. What a door says
is its own; here it is hung, opened, read again and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol, cast, final

from sluicegate.contracts.access import Access
from sluicegate.doors.binding import address_of, bind, bound_address
from sluicegate.doors.bounds import ListenerSettings
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.http.site import hosts_of
from sluicegate.doors.listener import Listener, ProtocolFactory
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.sniff import Kind
from sluicegate.doors.tls import Tls
from sluicegate.policies.access import OpenAccess
from sluicegate.service.access_file import ReloadedAccess
from sluicegate.service.bounds import (
    Bounds,
    WhoMay,
    check_all_public,
    listener_families,
    listener_settings,
    name_of,
    tls_of,
)
from sluicegate.service.siblings import socket_of
from sluicegate.telemetry.prometheus import MetricFamily

PEER_HOSTS: Final = frozenset({"localhost"})
SOCKET_MODE: Final = 0o600


class Listens(WhoMay, Bounds, Protocol):
    """Where, who, and how much."""

    @property
    def listen(self) -> tuple[str, ...]: ...  # noqa: D102 - as the field of that name says

    @property
    def hosts(self) -> tuple[str, ...]: ...  # noqa: D102


class HttpDoors(Protocol):
    """Makes the HTTP door for callers, and another for the peers, which asks no other worker."""

    def __call__(  # noqa: D102
        self, access: Access, hosts: frozenset[str] | None, *, alone: bool
    ) -> ProtocolFactory: ...


@final
class Doorway:
    """The listeners of one worker."""

    def __init__(self, settings: Listens, app: str) -> None:
        self._settings = settings
        self._app = app
        self.access = ReloadedAccess(settings.access, settings.token)
        self._wanted = [address_of(one, field="--listen") for one in settings.listen]
        check_all_public(settings, self._wanted)
        self._tls: Tls | None = tls_of(settings)
        self._listener: Listener | None = None
        self._private: Listener | None = None
        self.addresses: list[str] = []

    def open(self, http: HttpDoors, resp: RespDoor, grpc: GrpcDoor) -> None:
        """Listen."""
        settings = listener_settings(self._settings)
        # Bound before anything is made, because the HTTP door must know by which names it goes.
        sockets = [one for wanted in self._wanted for one in bind(wanted, settings)]
        bound = [bound_address(one) for one in sockets]
        protocols: dict[Kind, ProtocolFactory] = {
            Kind.RESP: lambda peer: resp.protocol(name_of(peer), peer.names),
            Kind.HTTP1: http(self.access, hosts_of(bound, self._settings.hosts), alone=False),
            Kind.HTTP2: lambda _: cast("asyncio.Protocol", grpc()),
        }
        self._listener = Listener(sockets, protocols, settings=settings, tls=self._tls)
        self._listener.start()
        self.addresses = [str(one) for one in bound]

    def open_to_peers(self, http: HttpDoors, folder: str, worker: int) -> None:
        """Listen to the other workers, if there are any: the folder is empty without them."""
        if folder:
            door = http(OpenAccess(), PEER_HOSTS, alone=True)
            self._private = Listener(
                [f"unix:{socket_of(folder, worker)}"],
                {Kind.HTTP1: door},
                settings=ListenerSettings(unix_mode=SOCKET_MODE),
            )
            self._private.start()

    async def close(self, grace_s: float) -> None:
        """Take nothing more, let what is under way finish within the grace, and end."""
        listener, self._listener = self._listener, None
        private, self._private = self._private, None
        try:
            if listener is not None:
                await listener.close(grace_s)
        except asyncio.CancelledError:
            if listener is not None:
                await listener.close(0.0)
            raise
        finally:
            if private is not None:
                await private.close(0.0)

    def reload_callers(self) -> bool:
        """Read who may come in again; whether there was a file to read."""
        return self.access.reload()

    def reload_certificates(self) -> None:
        """Likewise, what it shows to who comes."""
        if self._tls is not None:
            self._tls.reload()

    def stats(self) -> object:
        """What the listeners have seen; None while nothing listens."""
        return None if self._listener is None else self._listener.stats()

    def families(self) -> Iterable[MetricFamily]:
        """Likewise, as metrics."""
        return () if self._listener is None else listener_families(self._listener, self._app)
