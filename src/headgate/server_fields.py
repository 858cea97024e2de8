"""Server fields: the settings that every service has, and the readers they share.

Where it listens is each service's own; who may come in, over what, and how it ends is not.
"""

from __future__ import annotations

import re
from typing import Final

from headgate.contracts.errors import BadValue
from headgate.settings import Field, one_of, seconds, text, yes_or_no

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
        ".headgate",
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
