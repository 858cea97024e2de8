"""Settings: where the servers are and how to speak to them, a URL read into frozen settings.

Nothing is opened here. The schemes are those of Redis and Valkey clients and of the `limits`
library; a query may name any row of the table below. The password is in `password` alone: never in
a repr, and never in an error, whatever is wrong with the URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.path_timeout import CEILING_US
from sluicegate.stores.urls import (
    Query,
    as_seconds,
    as_truth,
    bounded,
    check_bounds,
    check_written_plainly,
    parse_query,
    query_of,
    redacted,
    split_url,
)

SINGLE: Final = "single"
CLUSTER: Final = "cluster"
SENTINEL: Final = "sentinel"

# One key that holds both counts, or a key for each window; see docs/guides/redis.md.
CELLS: Final = "cells"
WINDOWS: Final = "windows"
FLEET: Final = "fleet"  # equals: any of them answers for all

HOSTS_MAX: Final = 64
PORT_DEFAULT: Final = 6379
SENTINEL_PORT_DEFAULT: Final = 26379
FLEET_PORT_DEFAULT: Final = 7070

NO_DEFAULTS: Final[Mapping[str, object]] = {}
# Scheme: topology, TLS, Unix socket.
SCHEMES: Final[dict[str, tuple[str, bool, bool]]] = {
    "redis": (SINGLE, False, False),
    "rediss": (SINGLE, True, False),
    "unix": (SINGLE, False, True),
    "redis+unix": (SINGLE, False, True),
    "redis+cluster": (CLUSTER, False, False),
    "rediss+cluster": (CLUSTER, True, False),
    "redis+sentinel": (SENTINEL, False, False),
    "rediss+sentinel": (SENTINEL, True, False),
}


class Endpoint(NamedTuple):
    """One server: a host and a port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """Everything a client is told; checked when made."""

    endpoints: tuple[Endpoint, ...] = (Endpoint("127.0.0.1", PORT_DEFAULT),)
    topology: str = SINGLE
    kind: str = "Redis"  # what the servers are, in errors
    service: str = ""  # the master's name, for sentinels
    layout: str = CELLS  # of sliding windows by two counters: `cells` or `windows`
    user: str = ""
    password: str = field(default="", repr=False)
    sentinel_user: str | None = None  # None: as `user` and `password`
    sentinel_password: str | None = field(default=None, repr=False)
    db: int = bounded(0, 0, 1 << 20)
    shared: bool = False  # a fleet of several: they count in one store
    client_name: str = "sluicegate"
    tls: bool = False
    tls_ca: str = ""  # a file of certificates to trust instead of the machine's own
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify: bool = True
    tls_check_host: bool = True
    tls_name: str = ""  # that the certificate must be for; else the host that is connected to
    # From the write of a call to its reply; None follows the path (`path_timeout.py`).
    timeout_us: int | None = field(default=None, metadata={"bounds": (100, 3_600_000_000)})
    # Connecting, TLS, HELLO and a first answer, all together.
    connect_timeout_us: int = bounded(1_000_000, 1_000, 3_600_000_000)
    # A server that has let calls time out and says nothing for so long has its connection closed.
    silence_us_max: int = bounded(1_000_000, 1_000, 3_600_000_000)
    inflight_max: int = bounded(16_384, 1, 1 << 24)  # calls without an answer, a node
    unsent_bytes_max: int = bounded(8 << 20, 1_024, 1 << 30)  # waiting for the socket, a node
    reply_bytes_max: int = bounded(16 << 20, 1_024, 1 << 30)  # of one reply that has not come whole
    # Between attempts to reach a server again: the first wait
    backoff_us: int = bounded(20_000, 1_000, 3_600_000_000)
    backoff_us_max: int = bounded(500_000, 1_000, 3_600_000_000)
    # Cluster and sentinels: who serves what is asked again so often, and no oftener than that.
    refresh_us: int = bounded(30_000_000, 1_000, 86_400_000_000)
    refresh_us_min: int = bounded(100_000, 1_000, 3_600_000_000)
    # Times that one call may be sent again: MOVED, ASK, NOSCRIPT
    resends_max: int = bounded(5, 1, 100)
    nodes_max: int = bounded(1_000, 1, 10_000)

    @property
    def timeout_us_max(self) -> int:
        """The longest that a call may take."""
        return CEILING_US if self.timeout_us is None else self.timeout_us

    def __post_init__(self) -> None:
        check_bounds(self, "redis")
        if not 1 <= len(self.endpoints) <= HOSTS_MAX:
            raise BadValue(
                "redis.endpoints", len(self.endpoints), f"name from 1 to {HOSTS_MAX} servers"
            )
        if self.topology not in _PORTS:
            raise BadValue("redis.topology", self.topology, f"give one of {', '.join(_PORTS)}")
        if self.layout not in (CELLS, WINDOWS):
            raise BadValue("redis.layout", self.layout, "give cells or windows")
        if self.topology == SINGLE and len(self.endpoints) > 1:
            raise BadValue(
                "redis.endpoints",
                len(self.endpoints),
                "name one server, or say redis+cluster:// or redis+sentinel://",
            )
        if self.topology == CLUSTER and self.db:
            raise BadValue("redis.db", self.db, "leave it out: a cluster has only database 0")
        if self.topology == FLEET and len(self.endpoints) > 1 and not self.shared:
            raise BadValue(
                "redis.endpoints",
                len(self.endpoints),
                "add ?shared=yes if all of them count in one store; workers that count in their "
                "own memory would each admit the whole limit, so name one",
            )
        if self.shared and self.topology != FLEET:
            raise BadValue("redis.shared", self.shared, "leave it out: it is said of a fleet")
        if self.topology == SENTINEL and not self.service:
            raise BadValue("redis.service", "", "end the URL with the master's name: .../mymaster")
        if self.user and not self.password:
            raise BadValue("redis.user", self.user, "give the password too: redis://user:password@")
        if self.backoff_us_max < self.backoff_us:
            raise BadValue("redis.backoff_us_max", self.backoff_us_max, "give at least backoff_us")


_PORTS: Final[dict[str, int]] = {
    SINGLE: PORT_DEFAULT,
    CLUSTER: PORT_DEFAULT,
    SENTINEL: SENTINEL_PORT_DEFAULT,
    FLEET: FLEET_PORT_DEFAULT,
}


def _required(text: str) -> bool:
    return {"required": True, "none": False}[text.lower()]


# What a query may say, and how other clients name it.
_QUERY: Final[Query] = {
    **query_of(RedisSettings, "endpoints", "topology", "kind", "tls"),
    "layout": ("layout", str, "cells or windows"),
    "username": ("user", str, "a name"),
    "service_name": ("service", str, "the master's name"),
    "socket_timeout": ("timeout_us", as_seconds, "seconds"),
    "socket_connect_timeout": ("connect_timeout_us", as_seconds, "seconds"),
    "ssl_ca_certs": ("tls_ca", str, "a file"),
    "ssl_certfile": ("tls_cert", str, "a file"),
    "ssl_keyfile": ("tls_key", str, "a file"),
    "ssl_cert_reqs": ("tls_verify", _required, "required or none"),
    "ssl_check_hostname": ("tls_check_host", as_truth, "true or false"),
}


def schemes_text(schemes: Mapping[str, object] = SCHEMES) -> str:
    """Return how a URL may begin, for messages."""
    return ", ".join(f"{scheme}://" for scheme in schemes)


def parse_url(
    url: str,
    schemes: Mapping[str, tuple[str, bool, bool]] = SCHEMES,
    defaults: Mapping[str, object] = NO_DEFAULTS,
) -> RedisSettings:
    """Return the settings that a URL says; what it does not say has its default."""
    shown = redacted(url)
    scheme, colon, _ = url.partition("://")
    plain = scheme.lower().removeprefix("async+").replace("valkeys", "rediss")
    row = schemes.get(plain.replace("valkey", "redis"))
    if not colon or row is None:
        raise BadValue("redis.url", shown, f"begin it with one of {schemes_text(schemes)}")
    topology, tls, unix = row
    parts, pairs = split_url(url, "redis.url", "scheme://user:password@host:port/db")
    check_written_plainly(parts, "redis.url", shown)
    values: dict[str, object] = {**defaults, "topology": topology, "tls": tls}
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    if user:
        values["user"] = unquote(user)
    if password:
        values["password"] = unquote(password)
    if unix:
        values["endpoints"] = (_socket(parts, hosts, shown),)
    else:
        values["endpoints"] = _hosts(hosts, topology, shown)
        values.update(_path(parts.path, topology, shown))
    values.update(parse_query(pairs, _QUERY, "redis.url"))
    return RedisSettings(**values)  # type: ignore[arg-type]


def _socket(parts: SplitResult, hosts: str, shown: str) -> Endpoint:
    path = unquote(hosts + parts.path)
    if not path:
        raise BadValue("redis.url", shown, "give the socket's path: redis+unix:///run/redis.sock")
    return Endpoint("", 0, path)


def _hosts(hosts: str, topology: str, shown: str) -> tuple[Endpoint, ...]:
    port_default = _PORTS[topology]
    found: list[Endpoint] = []
    for text in hosts.split(",") if hosts else ["127.0.0.1"]:
        host, port = text, str(port_default)
        if text.startswith("["):
            host, _, after = text[1:].partition("]")
            port = after.removeprefix(":") or port
        elif ":" in text:
            host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
            raise BadValue("redis.url", shown, "give each server as host:port, split by commas")
        found.append(Endpoint(unquote(host), int(port)))
    return tuple(found)


def _path(path: str, topology: str, shown: str) -> dict[str, object]:
    name = unquote(path.strip("/"))
    if not name:
        return {}
    if topology == SENTINEL:
        service, _, db = name.partition("/")
        return {"service": service, **(_path(f"/{db}", SINGLE, shown) if db else {})}
    if topology == FLEET:
        raise BadValue("redis.url", shown, "end it with the port: nothing is behind it")
    if not name.isdecimal():
        raise BadValue("redis.url", shown, "end it with the database's number, or nothing")
    return {"db": int(name)}
