"""Server fields: the settings that every service has, their readers, and what goes together.

Where it listens is each service's own; who may come in, over what, and how it ends is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol

from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import Field, one_of, seconds, text, whole, yes_or_no

PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")


def address(said: str, where: str) -> str:
    """HOST:PORT or unix:PATH."""
    if said.startswith("unix:") and len(said) > len("unix:"):
        return said
    found = _ADDRESS.fullmatch(said.strip())
    if found is None or int(found["port"]) > PORT_MAX:
        remedy = "write HOST:PORT, as 127.0.0.1:7070, or unix:PATH; port 0 takes a free one"
        raise BadValue(where, said, remedy)
    return said.strip()


def share(said: str, where: str) -> float:
    """A share from 0 to 1, or a percentage."""
    try:
        value = float(said[:-1]) / 100 if said.endswith("%") else float(said)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise BadValue(where, said, "give a share from 0 to 1, or a percentage as 5%")
    return value


RULEBOOK: Final = (
    Field(
        "rulebook",
        text,
        "",
        "follow a rulebook in place of --rules: where its blobs are, files:DIR or s3://...",
        "URL",
    ),
    Field(
        "rulebook_keys",
        text,
        "",
        "public keys that its editions are signed with, PEM: files or a folder",
        "FILE",
        several=True,
    ),
    Field(
        "rulebook_events",
        text,
        "",
        "where its changes are announced; without it they are looked for",
        "URL",
    ),
    Field(
        "rulebook_folder",
        text,
        ".sluicegate",
        "where the last good rules are kept, to start from when all else is down",
        "DIR",
    ),
    Field(
        "rulebook_every_s",
        seconds(0.05, 3_600),
        "1",
        "between looks for new orders",
        "SECONDS",
    ),
    Field(
        "rulebook_report_s",
        seconds(0.1, 3_600),
        "5",
        "between reports of what it runs, and of what that decides, to the rulebook",
        "SECONDS",
    ),
    Field("node", text, "", "what this node is called; else by its host", "NAME"),
)
WHO_MAY: Final = (
    Field(
        "tls_cert", text, "", "the certificate chain, PEM; with it every connection is TLS", "FILE"
    ),
    Field("tls_key", text, "", "its key, PEM", "FILE"),
    Field(
        "tls_client_ca",
        text,
        "",
        "authorities of client certificates, PEM: callers must have one",
        "FILE",
    ),
    Field(
        "tls_client_optional",
        yes_or_no,
        "off",
        "let callers come without a certificate too",
        "on|off",
    ),
    Field("access", text, "", "who may ask what: a TOML file of callers (see the guide)", "FILE"),
    Field(
        "token",
        text,
        "",
        "one token that may do everything; better in the variable than the flag",
        "TOKEN",
        secret=True,
    ),
    Field(
        "insecure",
        yes_or_no,
        "off",
        "allow an address that others can reach without access control and TLS",
        "on|off",
    ),
)
AROUND: Final = (
    Field(
        "grace_s", seconds(0, 3_600), "10", "time for what is under way when told to end", "SECONDS"
    ),
    Field("metrics_open", yes_or_no, "on", "serve /metrics to whoever can connect", "on|off"),
    Field(
        "hosts",
        text,
        "",
        "Host names the HTTP door answers to, besides those it listens on",
        "NAME",
        several=True,
    ),
    Field(
        "log",
        one_of("debug", "info", "warning", "error"),
        "info",
        "what is written to stderr",
        "LEVEL",
    ),
)

# How many may come at a time, and how long one may say nothing.
CONNECTIONS: Final = (
    Field("connections_max", whole(1, 1_000_000), "10000", "connections at a time", "N"),
    Field(
        "connections_per_address_max", whole(1, 1_000_000), "10000", "of them from one address", "N"
    ),
    Field(
        "streams_max", whole(1, 100_000), "1000", "calls at a time on one HTTP/2 connection", "N"
    ),
    Field(
        "idle_s",
        seconds(1, 86_400),
        "300",
        "close a connection that is idle for so long",
        "SECONDS",
    ),
    Field(
        "head_s",
        seconds(0.1, 3_600),
        "10",
        "close one that has not said what it wants by then",
        "SECONDS",
    ),
)


class Shown(Protocol):
    """Certificates, as `WHO_MAY` has them."""

    @property
    def tls_cert(self) -> str: ...  # noqa: D102 - as the field of that name says

    @property
    def tls_key(self) -> str: ...  # noqa: D102

    @property
    def tls_client_ca(self) -> str: ...  # noqa: D102


class Ruled(Protocol):
    """Rules, or a rulebook, as `RULEBOOK` has it."""

    @property
    def rules(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def rulebook(self) -> str: ...  # noqa: D102

    @property
    def rulebook_keys(self) -> tuple[str, ...]: ...  # noqa: D102


def check_certificates(settings: Shown) -> None:
    """Raise for a certificate that stands alone."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise BadValue("--tls-key", settings.tls_key, "give --tls-cert and --tls-key together")
    if settings.tls_client_ca and not settings.tls_cert:
        raise BadValue(
            "--tls-client-ca", settings.tls_client_ca, "give --tls-cert and --tls-key too"
        )


def check_rulebook(settings: Ruled) -> None:
    """Raise for rules of two sources, or for a rulebook that nobody has signed."""
    if settings.rulebook and settings.rules:
        raise BadValue("--rules", settings.rules[0], "leave it out: --rulebook brings the rules")
    if settings.rulebook and not settings.rulebook_keys:
        remedy = "give the public key it is signed with, as keys/signing.pub.pem of the rulebook"
        raise BadValue("--rulebook-keys", "", remedy)


def check_shared_ports(listen: Iterable[str], workers: int) -> None:
    """Raise for a port that is each worker's own."""
    for at in listen:
        if workers > 1 and at.endswith(":0"):
            raise BadValue("--listen", at, "several workers need a port of a number, not 0")
