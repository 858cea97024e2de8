"""Bounds: what the settings of a service mean to its listeners and its doors."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Final

from sluicegate.doors.binding import Address, check_public
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.listener_settings import ListenerSettings, Network
from sluicegate.doors.tls import Tls, TlsFiles
from sluicegate.service.common_settings import AccessSettings, ConnectionSettings
from sluicegate.wire.h2.settings import H2Settings

_US: Final = 1_000_000
STREAMS_MAX: Final = 1_000  # calls at a time on one HTTP/2 connection


def check_all_public(settings: AccessSettings, addresses: Iterable[Address]) -> None:
    """Raise for an address that others can reach without access control and TLS."""
    # A certificate that callers may leave out tells nothing of who connects without one.
    certified = bool(settings.tls_client_ca) and not settings.tls_client_optional
    for address in addresses:
        check_public(
            address,
            tls=bool(settings.tls_cert),
            auth=bool(settings.access or settings.token or certified),
            insecure=settings.insecure,
        )


def tls_of(settings: AccessSettings) -> Tls | None:
    """The certificates; None without."""
    if not settings.tls_cert:
        return None
    required = bool(settings.tls_client_ca) and not settings.tls_client_optional
    return Tls(TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca, required))


def listener_settings(settings: ConnectionSettings, *, reuse_port: bool) -> ListenerSettings:
    """Bounds of connections."""
    return ListenerSettings(
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_address_max,
        proxies=tuple(ip_network(one) for one in settings.proxy_protocol),
        trusted_proxies=_trusted(settings),
        sniff_timeout_s=settings.head_s,
        idle_timeout_s=settings.idle_s,
        reuse_port=reuse_port,
    )


def grpc_settings(settings: ConnectionSettings) -> GrpcSettings:
    """Bounds of HTTP/2."""
    return GrpcSettings(
        h2=H2Settings(streams_max=STREAMS_MAX, idle_us_max=int(settings.idle_s * _US)),
        message_bytes_max=settings.message_bytes_max,
    )


def http_settings(settings: ConnectionSettings) -> HttpSettings:
    """Bounds of HTTP/1.1."""
    return HttpSettings(
        body_bytes_max=settings.message_bytes_max,
        head_timeout_s=settings.head_s,
        keep_alive_s=settings.idle_s,
        trusted_proxies=_trusted(settings),
    )


def _trusted(settings: ConnectionSettings) -> tuple[Network, ...]:
    return tuple(ip_network(one) for one in settings.trusted_proxies)
