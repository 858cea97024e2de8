"""Listeners: the doors of one worker, opened on the addresses of its settings.

All languages share each address. Where there are several workers, one more listener on a socket in
their private folder speaks HTTP to the siblings alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, cast, final

from sluicegate.contracts.access import PeopleAccess
from sluicegate.doors.binding import address_of, bind, bound_address
from sluicegate.doors.grpc.health import GrpcHealth
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.reflection import Reflection, files_of
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.site import hosts_of
from sluicegate.doors.listener import Listener, PeerInfo, ProtocolFactory
from sluicegate.doors.listener_settings import OWED_BYTES_MAX, ListenerSettings
from sluicegate.doors.sniff import Language
from sluicegate.policies.access import OpenAccess
from sluicegate.service.access_file import ReloadedAccess
from sluicegate.service.app import AnyApp, GrpcServices, Site
from sluicegate.service.bounds import check_all_public, grpc_settings, listener_settings, tls_of
from sluicegate.service.siblings import socket_of
from sluicegate.service.status import WorkerStatus
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, gauge

SIBLING_HOSTS: Final = frozenset({"localhost"})
SOCKET_MODE: Final = 0o600
_LANGUAGES: Final = {Language.HTTP2: "gRPC", Language.RESP: "RESP", Language.HTTP1: "HTTP"}


@final
class Listeners:
    """Everything that listens in one worker of an app."""

    def __init__(self, app: AnyApp) -> None:
        settings = app.settings
        self._app = app
        self._settings = settings
        self._addresses = [address_of(one, field="--listen") for one in settings.listen]
        check_all_public(settings, self._addresses)
        self._tls = tls_of(settings)
        self._access: PeopleAccess = app.access()
        self._change_callers()
        services = app.grpc()
        self._health = GrpcHealth(app.serving, services.names if services else ("",))
        self._grpc = None if services is None else self._grpc_door(services)
        self._resp = app.resp(self._access)
        if self._resp is not None and app.tracing is not None:
            self._resp.wrap_commands(app.tracing.trace_command)
        self._http: HttpDoor | None = None
        self._public: Listener | None = None
        self._private: Listener | None = None
        self._bound: list[str] = []

    def open(self) -> None:
        """Listen."""
        bounds = listener_settings(self._settings, reuse_port=self._app.worker.workers > 1)
        # Bound before the doors are made, because the HTTP door must know its own names.
        sockets = [one for address in self._addresses for one in bind(address, bounds)]
        bound = [bound_address(one) for one in sockets]
        # Over TLS another's name is not in the certificate.
        secret = self._tls is not None or self._access.anonymous is None
        hosts = hosts_of(bound, self._settings.hosts, secret=secret)
        protocols: dict[Language, ProtocolFactory] = {}
        grpc, resp = self._grpc, self._resp
        if grpc is not None:
            protocols[Language.HTTP2] = lambda _: cast("asyncio.Protocol", grpc())
        if resp is not None:
            protocols[Language.RESP] = lambda peer: resp.protocol(name_of(peer), peer.names)
        self._http = self._http_door(self._access, hosts, alone=False)
        protocols[Language.HTTP1] = self._http
        # Bodies have a bound of their own, beyond which a request is rejected and not cut.
        most = bounds.owed_bytes_max + self._http.settings.bodies_bytes_max
        bounds = replace(bounds, owed_bytes_max=min(most, OWED_BYTES_MAX))
        self._public = Listener(sockets, protocols, settings=bounds, tls=self._tls)
        self._public.start()
        self._bound = [str(one) for one in bound]
        if self._app.worker.folder:
            self._open_to_siblings()

    def leave(self) -> None:
        """Report not ready, and close HTTP/1.1 connections with their next reply."""
        self._health.notify()
        if self._http is not None:
            self._http.leaving = True

    async def close(self, grace_s: float) -> None:
        """Accept nothing more, let open work finish within the grace, and end."""
        self._health.drain()
        public, self._public = self._public, None
        private, self._private = self._private, None
        try:
            if public is not None:
                await public.close(grace_s)
        except asyncio.CancelledError:
            if public is not None:
                await public.close(0.0)
            raise
        finally:
            if private is not None:
                await private.close(0.0)

    def reload(self) -> None:
        """Read callers and certificates again."""
        if isinstance(self._access, ReloadedAccess) and self._access.reload():
            self._change_callers()
            if self._public is not None:
                self._public.check_callers()
        if self._tls is not None:
            self._tls.reload()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, with the ports it was given."""
        return tuple(self._bound)

    def summary(self) -> str:
        """The languages and the addresses, as the line has them that says it is ready."""
        kinds = [Language.HTTP1]
        if self._resp is not None:
            kinds.insert(0, Language.RESP)
        if self._grpc is not None:
            kinds.insert(0, Language.HTTP2)
        *most, last = (_LANGUAGES[kind] for kind in kinds)
        languages = f"{', '.join(most)} and {last}" if most else last
        secure = " over TLS" if self._tls is not None else ""
        return f"{languages}{secure} on {' and '.join(self._bound)}"

    def state(self) -> object:
        """What the listeners have seen."""
        return {
            "listener": None if self._public is None else self._public.stats(),
            "grpc_streams": 0 if self._grpc is None else self._grpc.streams,
            "resp_commands": 0 if self._resp is None else self._resp.commands,
        }

    def metrics(self) -> Iterable[MetricFamily]:
        """The same as metrics."""
        return () if self._public is None else _metrics_of(self._public, self._app.name)

    # Inside.

    def _change_callers(self) -> None:
        if isinstance(self._access, ReloadedAccess):
            self._app.change_callers(self._access.identities)

    def _open_to_siblings(self) -> None:
        worker = self._app.worker
        self._private = Listener(
            [f"unix:{socket_of(worker.folder, worker.number)}"],
            {Language.HTTP1: self._http_door(OpenAccess(), SIBLING_HOSTS, alone=True)},
            settings=ListenerSettings(unix_mode=SOCKET_MODE),
        )
        self._private.start()

    def _grpc_door(self, services: GrpcServices) -> GrpcDoor:
        files = (file for one in services.descriptors for file in files_of(one))
        methods, health = services.methods, self._health
        whole = methods._replace(
            unary={**methods.unary, **health.unary},
            streams={**methods.streams, **Reflection(files).streams, **health.streams},
            open=health.open,
        )
        app = self._app
        if app.tracing is not None:
            whole = app.tracing.trace_methods(whole)
        return GrpcDoor(whole, self._access, app.clock, grpc_settings(self._settings), app.pace)

    def _http_door(
        self, access: PeopleAccess, hosts: frozenset[str] | None, *, alone: bool
    ) -> HttpDoor:
        app = self._app
        status = WorkerStatus(
            app.name,
            app.worker,
            parts={
                **app.state(),
                "background": app.background.state,
                "connections": self.state,
            },
            metrics=self._all_metrics,
            not_ready=app.not_ready,
            not_alive=app.not_alive,
            alone=alone,
        )
        handler = app.http(Site(status, access, hosts))
        if app.tracing is not None and not alone:
            app.tracing.trace_routes(handler)
        pace = None if alone else app.pace
        settings = app.http_settings()
        if alone:
            settings = replace(settings, trusted_proxies=())
        page, cors = handler.error_page, handler.cors
        return HttpDoor(handler.handle, app.clock, settings, pace, page, cors)

    def _all_metrics(self) -> Iterable[MetricFamily]:
        yield from self._app.metrics()
        yield from self._app.background.metrics()
        if self._app.tracing is not None:
            yield from self._app.tracing.metrics()
        yield from self.metrics()


def name_of(peer: PeerInfo) -> str:
    """What a peer is called in lists."""
    return f"{peer.host}:{peer.port}" if peer.host else "unix"


def _metrics_of(listener: Listener, app: str) -> Iterable[MetricFamily]:
    stats = listener.stats()
    connections = dict.fromkeys((kind.value for kind in _LANGUAGES), 0)
    for _, kind in listener.open_connections():
        if kind is not None and kind.value in connections:
            connections[kind.value] += 1
    yield MetricFamily(
        f"sluicegate_{app}_connections",
        "gauge",
        "",
        "Connections open now, by protocol.",
        [MetricSample("", (("protocol", name),), count) for name, count in connections.items()],
    )
    ended = {
        "full": stats.refused_full,
        "per_address": stats.refused_per_address,
        "kind": stats.refused_kind,
        "unknown": stats.unknown,
        "proxy": stats.proxy_faults,
        "tls": stats.tls_failures,
        "slow": stats.sniff_timeouts,
        "idle": stats.idle_timeouts,
        "not_reading": stats.not_reading,
        "memory": stats.over_owed,
    }
    yield gauge(
        f"sluicegate_{app}_owed_bytes",
        "Bytes of unsent replies and unread input that connections hold.",
        listener.owed_bytes(),
    )
    yield MetricFamily(
        f"sluicegate_{app}_connections_ended",
        "counter",
        "",
        "Connections that were refused or ended by a bound.",
        [MetricSample("_total", (("why", name),), count) for name, count in ended.items()],
    )
