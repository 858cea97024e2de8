"""Listening: what the settings of a server say to its listener and its doors.

Every server that speaks on one port has these settings under these names (`server_fields.py` has
most of them); what each speaks there is its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from sluicegate.doors.binding import Address, check_public
from sluicegate.doors.bounds import ListenerSettings
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.http.bounds import HttpSettings
from sluicegate.doors.listener import Listener, PeerInfo
from sluicegate.doors.sniff import Kind
from sluicegate.doors.tls import Tls, TlsFiles
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample
from sluicegate.wire.h2.settings import H2Settings

_US: Final = 1_000_000


class WhoMay(Protocol):
    """Who may come in, over what."""

    @property
    def tls_cert(self) -> str: ...  # noqa: D102 - as the field of that name says

    @property
    def tls_key(self) -> str: ...  # noqa: D102

    @property
    def tls_client_ca(self) -> str: ...  # noqa: D102

    @property
    def tls_client_optional(self) -> bool: ...  # noqa: D102

    @property
    def access(self) -> str: ...  # noqa: D102

    @property
    def token(self) -> str: ...  # noqa: D102

    @property
    def insecure(self) -> bool: ...  # noqa: D102


class Bounds(Protocol):
    """How much of what."""

    @property
    def workers(self) -> int: ...  # noqa: D102

    @property
    def connections_max(self) -> int: ...  # noqa: D102

    @property
    def connections_per_address_max(self) -> int: ...  # noqa: D102

    @property
    def streams_max(self) -> int: ...  # noqa: D102

    @property
    def message_bytes_max(self) -> int: ...  # noqa: D102

    @property
    def idle_s(self) -> float: ...  # noqa: D102

    @property
    def head_s(self) -> float: ...  # noqa: D102


def check_all_public(settings: WhoMay, addresses: Iterable[Address]) -> None:
    """No address that others can reach without access control and TLS, unless that was said."""
    # A certificate that callers may leave out tells nothing of who comes without one.
    certified = bool(settings.tls_client_ca) and not settings.tls_client_optional
    for address in addresses:
        check_public(
            address,
            tls=bool(settings.tls_cert),
            auth=bool(settings.access or settings.token or certified),
            insecure=settings.insecure,
        )


def tls_of(settings: WhoMay) -> Tls | None:
    """The certificates; None without."""
    if not settings.tls_cert:
        return None
    required = bool(settings.tls_client_ca) and not settings.tls_client_optional
    return Tls(TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca, required))


def listener_settings(settings: Bounds) -> ListenerSettings:
    """Bounds of connections."""
    return ListenerSettings(
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_address_max,
        sniff_timeout_s=settings.head_s,
        idle_timeout_s=settings.idle_s,
        reuse_port=settings.workers > 1,
    )


def grpc_settings(settings: Bounds) -> GrpcSettings:
    """Bounds of HTTP/2."""
    return GrpcSettings(
        h2=H2Settings(streams_max=settings.streams_max, idle_us_max=int(settings.idle_s * _US)),
        message_bytes_max=settings.message_bytes_max,
    )


def http_settings(settings: Bounds) -> HttpSettings:
    """Bounds of HTTP/1.1."""
    return HttpSettings(
        body_bytes_max=settings.message_bytes_max,
        head_timeout_s=settings.head_s,
        keep_alive_s=settings.idle_s,
    )


def name_of(peer: PeerInfo) -> str:
    """What a peer is called in lists."""
    return f"{peer.host}:{peer.port}" if peer.host else "unix"


def listener_families(listener: Listener, app: str) -> Iterable[MetricFamily]:
    """What a listener has seen, as metrics of an app."""
    stats = listener.stats()
    open_now = {kind.value: 0 for kind in (Kind.HTTP2, Kind.RESP, Kind.HTTP1)}
    for _, kind in listener.open_connections():
        if kind is not None and kind.value in open_now:
            open_now[kind.value] += 1
    yield MetricFamily(
        f"sluicegate_{app}_connections",
        "gauge",
        "",
        "Connections open now, by protocol.",
        [MetricSample("", (("protocol", name),), count) for name, count in open_now.items()],
    )
    refused = {
        "full": stats.refused_full,
        "per_address": stats.refused_per_address,
        "kind": stats.refused_kind,
        "unknown": stats.unknown,
        "tls": stats.tls_failures,
        "slow": stats.sniff_timeouts,
        "idle": stats.idle_timeouts,
        "not_reading": stats.not_reading,
    }
    yield MetricFamily(
        f"sluicegate_{app}_connections_ended",
        "counter",
        "",
        "Connections that were refused or ended by a bound.",
        [MetricSample("_total", (("why", name),), count) for name, count in refused.items()],
    )
