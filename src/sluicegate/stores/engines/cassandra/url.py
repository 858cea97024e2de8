"""Where a Cassandra is and how it is spoken to: `cassandra://host,host:9042/keyspace?...` as frozen
settings.

Nothing is opened here, and no driver is imported. The password is in `password` alone: never in a
repr, and never in an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.urls import (
    Query,
    as_ms,
    as_truth,
    check_numbers,
    check_written_plainly,
    parse_query,
    redacted,
    split_url,
)

SCHEME: Final = "cassandra://"
PORT_DEFAULT: Final = 9042
HOSTS_MAX: Final = 64

# Of reads and of writes: any two of these sets of copies have one in common.
QUORUM: Final = "quorum"
LOCAL_QUORUM: Final = "local_quorum"
ALL: Final = "all"

# What settles which of two writes is the later one.
CLOCK: Final = "clock"
PAXOS: Final = "paxos"

# What of a node is held against `tls_ca`: that its certificate is one of these, besides that it
# names the node's address, or besides that it names the node, as its address is named by DNS.
CERTIFICATE: Final = "certificate"
ADDRESS: Final = "address"
NAME: Final = "name"

_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}", re.ASCII)
_DATACENTER: Final = re.compile(r"[A-Za-z0-9_.-]{0,100}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSettings:
    """The settings of the engine, validated."""

    hosts: tuple[str, ...] = ("127.0.0.1",)
    port: int = PORT_DEFAULT
    keyspace: str = "sluicegate"
    datacenter: str = ""  # the one that is asked; empty: that of the first host that answers
    consistency: str = QUORUM
    order: str = CLOCK
    replication: int = 3  # copies, of a keyspace that is made
    create: bool = True  # the keyspace and its tables, if they are not there
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify: str = CERTIFICATE  # what a node's certificate must be, if `tls_ca` is given
    timeout_us: int = 3_000_000  # of one request to the cluster
    connect_timeout_us: int = 5_000_000
    backoff_us: int = 200_000  # between attempts to reach a cluster that does not answer
    heard_us: int = 10_000_000  # until every node has heard of tables that were just made
    inflight_max: int = 512  # requests that the cluster has from us
    waiting_max: int = 16_384  # requests that wait for one of those to end
    load_max: int = 64  # of `inflight_max`, what one load or drop may have
    batch_bytes_max: int = 64 << 10  # of a load's batch
    known_max: int = 100_000  # partitions of which it is remembered that they are in the index
    known_us: int = 600_000_000  # and for how long
    walk_bytes_max: int = 16 << 20  # of what a walk tells at once
    io_threads: int = 1
    connections: int = 1  # to each node, by each of those threads

    def __post_init__(self) -> None:
        check_numbers(self, _BOUNDS, "cassandra")
        if not 1 <= len(self.hosts) <= HOSTS_MAX:
            raise BadValue("cassandra.hosts", len(self.hosts), f"name from 1 to {HOSTS_MAX} nodes")
        if _KEYSPACE.fullmatch(self.keyspace) is None:
            raise BadValue(
                "cassandra.keyspace",
                self.keyspace,
                "give up to 48 of a-z, 0-9 and _, a letter first",
            )
        if _DATACENTER.fullmatch(self.datacenter) is None:
            raise BadValue("cassandra.datacenter", self.datacenter, "give its name")
        if self.consistency not in (QUORUM, LOCAL_QUORUM, ALL):
            raise BadValue(
                "cassandra.consistency",
                self.consistency,
                "give quorum, local_quorum or all: with less, a read may miss what was written",
            )
        if self.order not in (CLOCK, PAXOS):
            raise BadValue("cassandra.order", self.order, "give clock or paxos")
        if self.tls_verify not in (CERTIFICATE, ADDRESS, NAME):
            raise BadValue(
                "cassandra.tls_verify", self.tls_verify, "give certificate, address or name"
            )
        if self.tls_verify != CERTIFICATE and not (self.tls and self.tls_ca):
            raise BadValue("cassandra.tls_verify", self.tls_verify, "give tls=yes and tls_ca too")
        if self.user and not self.password:
            raise BadValue("cassandra.user", self.user, "give the password too: user:password@")
        if self.load_max > self.inflight_max:
            raise BadValue("cassandra.load_max", self.load_max, "give at most inflight_max")


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "port": (1, 65_535),
    "replication": (1, 100),
    "timeout_us": (10_000, 3_600_000_000),
    "connect_timeout_us": (10_000, 3_600_000_000),
    "backoff_us": (1_000, 3_600_000_000),
    "heard_us": (0, 3_600_000_000),
    "inflight_max": (1, 65_536),
    "waiting_max": (0, 1 << 24),
    "load_max": (1, 65_536),
    "batch_bytes_max": (1, 16 << 20),
    "known_max": (1, 1 << 24),
    "known_us": (0, 1_200_000_000),  # well below UNKNOWN_AFTER_S of `cassandra`
    "walk_bytes_max": (1, 1 << 30),
    "io_threads": (1, 64),
    "connections": (1, 64),
}


_QUERY: Final[Query] = {
    "consistency": ("consistency", str, "quorum, local_quorum or all"),
    "order": ("order", str, "clock or paxos"),
    "replication": ("replication", int, "a whole number"),
    "create": ("create", as_truth, "yes or no"),
    "datacenter": ("datacenter", str, "a name"),
    "tls": ("tls", as_truth, "yes or no"),
    "tls_ca": ("tls_ca", str, "a file"),
    "tls_cert": ("tls_cert", str, "a file"),
    "tls_key": ("tls_key", str, "a file"),
    "tls_verify": ("tls_verify", str, "certificate, address or name"),
    "timeout_ms": ("timeout_us", as_ms, "milliseconds"),
    "connect_timeout_ms": ("connect_timeout_us", as_ms, "milliseconds"),
    "backoff_ms": ("backoff_us", as_ms, "milliseconds"),
    "heard_ms": ("heard_us", as_ms, "milliseconds"),
    "inflight_max": ("inflight_max", int, "a whole number"),
    "waiting_max": ("waiting_max", int, "a whole number"),
    "load_max": ("load_max", int, "a whole number"),
    "batch_bytes_max": ("batch_bytes_max", int, "a whole number"),
    "known_max": ("known_max", int, "a whole number"),
    "known_ms": ("known_us", as_ms, "milliseconds"),
    "walk_bytes_max": ("walk_bytes_max", int, "a whole number"),
    "io_threads": ("io_threads", int, "a whole number"),
    "connections": ("connections", int, "a whole number"),
}


def parse_url(url: str) -> CassandraSettings:
    """Parse a URL; what it leaves out has its default."""
    safe_url = redacted(url)
    if not url.startswith(SCHEME):
        raise BadValue("engine", safe_url, f"begin it with {SCHEME}")
    parts, pairs = split_url(url, "engine", "cassandra://host,host:9042/keyspace")
    check_written_plainly(parts, "engine", safe_url)
    values: dict[str, object] = {}
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    if user:
        values["user"] = unquote(user)
        values["password"] = unquote(password)
    values["hosts"], values["port"] = _hosts(hosts, safe_url)
    if keyspace := parts.path.strip("/"):
        values["keyspace"] = keyspace
    values.update(parse_query(pairs, _QUERY, "engine"))
    return CassandraSettings(**values)  # type: ignore[arg-type]


def _hosts(text: str, safe_url: str) -> tuple[tuple[str, ...], int]:
    hosts: list[str] = []
    ports: set[int] = set()
    for one in text.split(",") if text else ["127.0.0.1"]:
        host, port = one, ""
        if one.startswith("["):
            host, _, after = one[1:].partition("]")
            port = after.removeprefix(":")
        elif ":" in one:
            host, _, port = one.rpartition(":")
        if not host or (port and not (port.isdecimal() and 1 <= int(port) <= 65_535)):
            raise BadValue(
                "engine", safe_url, "give each node as host or host:port, split by commas"
            )
        hosts.append(unquote(host))
        if port:
            ports.add(int(port))
    if len(ports) > 1:
        raise BadValue(
            "engine", safe_url, "give one port: all nodes of a cluster listen on the same"
        )
    return tuple(hosts), ports.pop() if ports else PORT_DEFAULT
