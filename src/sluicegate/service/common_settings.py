"""Common settings: the settings that services share, each declared once.

A service inherits `ServiceSettings`, one that runs several workers `WorkerSettings`, one that goes
by rules `RulesSettings`. A class is a group of `--help`; its first line is the group's title.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.utilization_shed import CRITICAL_BEGIN_MIN
from sluicegate.policies.admission.ramps import (
    FROM_DEFAULT,
    NEVER,
    ONE_BY_ONE,
    TOGETHER,
    Ramps,
    read_ramps,
)
from sluicegate.rules.web.addresses import network_remedy
from sluicegate.service.settings import (
    SHARE,
    Setting,
    SettingsBase,
    SettingType,
    one_of,
    seconds,
    whole,
)

PORT_MAX: Final = 65_535
WORKERS_MAX: Final = 256
SHED_FROM_MAX: Final = 0.7  # where all of BULK is shed, one class after the other
ANY_ORIGIN: Final = "*"
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")


def _parse_address(text: str, where: str) -> str:
    if text.startswith("unix:") and len(text) > len("unix:"):
        return text
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > PORT_MAX:
        remedy = "write HOST:PORT, as 127.0.0.1:7070, or unix:PATH; port 0 takes a free one"
        raise BadValue(where, text, remedy)
    return text.strip()


def _parse_network(text: str, where: str) -> str:
    remedy = network_remedy(text)
    if remedy:
        raise BadValue(where, text, remedy)
    return text


def _parse_origin(text: str, where: str) -> str:
    """Return an origin as browsers write it: in lower case, without the port of its scheme."""
    origin = text.lower()
    if origin == ANY_ORIGIN:
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise BadValue(where, text, "write scheme://host or scheme://host:port, or *")
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


NETWORK: Final = SettingType(_parse_network, "NETWORK")
ORIGIN: Final = SettingType(_parse_origin, "ORIGIN")
ADDRESS: Final = SettingType(_parse_address, "HOST:PORT")
LISTEN: Final = Setting("where to listen; all that it speaks is on one port", ADDRESS)


@dataclass(frozen=True, kw_only=True)
class AccessSettings(SettingsBase):
    """Access and TLS."""

    tls_cert: Annotated[
        str, Setting("the certificate chain, PEM; with it every connection is TLS", metavar="FILE")
    ] = ""
    tls_key: Annotated[str, Setting("its key, PEM", metavar="FILE")] = ""
    tls_client_ca: Annotated[
        str,
        Setting("authorities of client certificates, PEM: callers must have one", metavar="FILE"),
    ] = ""
    tls_client_optional: Annotated[
        bool, Setting("let callers connect without a certificate too")
    ] = False
    access: Annotated[
        str, Setting("who may do what: a TOML file of callers (see the guide)", metavar="FILE")
    ] = ""
    token: Annotated[
        str,
        Setting(
            "one token that may do everything; better in the variable than the flag",
            metavar="TOKEN",
            secret=True,
        ),
    ] = ""
    insecure: Annotated[
        bool, Setting("allow an address that others can reach without access control and TLS")
    ] = False

    def check(self) -> None:
        """Raise for a certificate without its key, or authorities without a certificate."""
        super().check()
        if bool(self.tls_cert) != bool(self.tls_key):
            raise BadValue("--tls-key", self.tls_key, "give --tls-cert and --tls-key together")
        if self.tls_client_ca and not self.tls_cert:
            remedy = "give --tls-cert and --tls-key too"
            raise BadValue("--tls-client-ca", self.tls_client_ca, remedy)


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings(SettingsBase):
    """Bounds of connections."""

    connections_max: Annotated[int, Setting("connections at a time", whole(1, 1_000_000))] = 10_000
    connections_per_address_max: Annotated[
        int, Setting("of them from one address", whole(1, 1_000_000))
    ] = 2_500
    proxy_protocol: Annotated[
        tuple[str, ...],
        Setting("proxies that say by the PROXY protocol whom they connect", NETWORK),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        Setting(
            "proxies whose Forwarded or X-Forwarded-* headers name client, scheme and host", NETWORK
        ),
    ] = ()
    message_bytes_max: Annotated[
        int,
        Setting(
            "bytes of a gRPC message, an HTTP body, a RESP command", whole(1, 1 << 30, "BYTES")
        ),
    ] = 4 << 20
    idle_s: Annotated[
        float,
        Setting("idle time before a connection is closed", seconds(1, 86_400), expert=True),
    ] = 300.0
    head_s: Annotated[
        float,
        Setting("time limit to receive a complete request", seconds(0.1, 3_600), expert=True),
    ] = 10.0


@dataclass(frozen=True, kw_only=True)
class TraceSettings(SettingsBase):
    """Traces."""

    traces: Annotated[
        str,
        Setting(
            "send spans by OTLP over HTTP to this collector, as http://127.0.0.1:4318",
            metavar="URL",
        ),
    ] = ""
    traces_share: Annotated[
        float,
        Setting(
            "the share of requests that are traced though nobody asks for it", SHARE, live=True
        ),
    ] = 0.01
    traces_per_s: Annotated[
        int,
        Setting(
            "requests a second that are traced at most, whoever asks for it",
            whole(1, 1_000_000),
            live=True,
            expert=True,
        ),
    ] = 100

    def check(self) -> None:
        """Raise for what is no address of a collector."""
        super().check()
        scheme, mark, rest = self.traces.partition("://")
        if self.traces and not (mark and rest and scheme in ("http", "https")):
            raise BadValue("--traces", self.traces, "give http://HOST:PORT or https://HOST:PORT")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(AccessSettings, ConnectionSettings, TraceSettings):
    """The service itself."""

    listen: Annotated[tuple[str, ...], LISTEN] = ("127.0.0.1:0",)
    leave_s: Annotated[
        float,
        Setting(
            "after SIGTERM, stay open but not ready until load balancers notice",
            seconds(0, 3_600),
            live=True,
        ),
    ] = 5.0
    grace_s: Annotated[
        float,
        Setting("time to finish open work when told to end", seconds(0, 3_600), live=True),
    ] = 10.0
    metrics_open: Annotated[bool, Setting("serve /metrics to whoever can connect")] = True
    hosts: Annotated[
        tuple[str, ...],
        Setting("Host names the HTTP door answers to, besides those it listens on", metavar="NAME"),
    ] = ()
    log: Annotated[
        str,
        Setting(
            "what is written to stderr",
            one_of("debug", "info", "warning", "error"),
            "LEVEL",
            live=True,
        ),
    ] = "info"


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(ServiceSettings):
    """Workers."""

    workers: Annotated[
        int, Setting("processes that share the port, and a store", whole(1, WORKERS_MAX))
    ] = 1

    def check(self) -> None:
        """Raise for a port that each worker would have for itself."""
        super().check()
        for address in self.listen:
            if self.workers > 1 and address.endswith(":0"):
                remedy = "several workers need a port with a number, not 0"
                raise BadValue("--listen", address, remedy)


@dataclass(frozen=True, kw_only=True)
class RulesSettings(WorkerSettings):
    """Rules."""

    rules: Annotated[
        tuple[str, ...],
        Setting("rules: a file, or a folder of files, in our format or Envoy's", metavar="PATH"),
    ] = ()
    glass: Annotated[
        str,
        Setting(
            "stop enforcing what `sluicegate limits glass` or the console's Emergency page says "
            "there: redis://... or file:/glass.json",
            metavar="URL",
            secret=True,
        ),
    ] = ""
    rulebook: Annotated[
        str,
        Setting(
            "follow a rulebook instead of --rules: where its blobs are, files:DIR or s3://...",
            metavar="URL",
        ),
    ] = ""
    rulebook_keys: Annotated[
        tuple[str, ...],
        Setting("public keys that sign its releases, PEM: files or a folder", metavar="FILE"),
    ] = ()
    rulebook_events: Annotated[
        str,
        Setting("where its changes are announced; without it they are polled for", metavar="URL"),
    ] = ""
    rulebook_folder: Annotated[
        str,
        Setting(
            "where the last good rules are kept, to start from when all else is down",
            metavar="DIR",
        ),
    ] = ".sluicegate"
    rulebook_every_s: Annotated[
        float, Setting("between polls for a new rollout", seconds(0.05, 3_600), expert=True)
    ] = 1.0
    rulebook_report_s: Annotated[
        float,
        Setting(
            "between reports to the rulebook of what runs here; each is a PUT to its blobs",
            seconds(0.1, 3_600),
            expert=True,
        ),
    ] = 30.0
    node: Annotated[str, Setting("the name of this node; else its host's", metavar="NAME")] = ""

    def check(self) -> None:
        """Raise for rules from two sources, or for a rulebook without its public keys."""
        super().check()
        if self.rulebook and self.rules:
            raise BadValue("--rules", self.rules[0], "leave it out: --rulebook brings the rules")
        if self.rulebook and not self.rulebook_keys:
            remedy = "give the public key that signs it, as keys/signing.pub.pem of the rulebook"
            raise BadValue("--rulebook-keys", "", remedy)


@dataclass(frozen=True, kw_only=True)
class RampsSettings(SettingsBase):
    """Shedding by utilization."""

    shed_ramps: Annotated[
        str,
        Setting(
            f"which class is shed from which utilization: {ONE_BY_ONE}; {TOGETHER}, BULK and "
            "BEST_EFFORT alike; or BEST_EFFORT:0.7-0.8,BULK:0.6-0.7",
            metavar="RAMPS",
            live=True,
        ),
    ] = ONE_BY_ONE
    shed_from: Annotated[
        float, Setting("utilization at which the first of them begins", SHARE, live=True)
    ] = FROM_DEFAULT
    shed_critical_from: Annotated[
        float,
        Setting(
            "utilization at which even CRITICAL is shed, 0.8 at the least; 1 is never",
            SHARE,
            live=True,
        ),
    ] = NEVER

    @property
    def ramps(self) -> Ramps:
        """The ramps that these say."""
        return read_ramps(
            self.shed_ramps,
            begin=self.shed_from,
            critical_from=self.shed_critical_from,
            field="--shed-ramps",
        )

    def check(self) -> None:
        """Raise for ramps that are none, or that are said twice."""
        super().check()
        if self.shed_critical_from < CRITICAL_BEGIN_MIN:
            remedy = f"give {CRITICAL_BEGIN_MIN} or more"
            raise BadValue("--shed-critical-from", self.shed_critical_from, remedy)
        if self.shed_from > SHED_FROM_MAX:
            remedy = f"give at most {SHED_FROM_MAX}; {FROM_DEFAULT} is the default"
            raise BadValue("--shed-from", self.shed_from, remedy)
        ramps = self.ramps
        if self.shed_ramps not in (ONE_BY_ONE, TOGETHER):
            for name, value, default in (
                ("--shed-from", self.shed_from, FROM_DEFAULT),
                ("--shed-critical-from", self.shed_critical_from, NEVER),
            ):
                if value != default:
                    raise BadValue(name, value, f"leave it out: --shed-ramps says it, {ramps}")
