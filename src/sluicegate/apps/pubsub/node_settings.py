"""Node settings: what makes a `sluicegate pubsub` one node of a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

from sluicegate.apps.pubsub.channel import tag_of
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.hash_ring import NODES_MAX
from sluicegate.policies.suppression.suppress import ERROR_DIFFUSION, REJECTIONS, SuppressSettings
from sluicegate.policies.suppression.suppress_master import (
    FORMS,
    LADDER,
    SuppressMasterSettings,
)
from sluicegate.service.common_settings import ADDRESS, AccessSettings
from sluicegate.service.settings import Setting, SettingType, one_of, seconds, whole
from sluicegate.stores.redis.settings import Endpoint, RedisSettings, parse_url
from sluicegate.stores.urls import redacted

DNS: Final = "dns://"
_US: Final = 1_000_000
_NODE: Final = SuppressSettings()
_MASTER: Final = SuppressMasterSettings()
_TIMEOUT_US_MIN: Final = 300_000  # of a report
_MEMBER: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.:-]{0,127})="
    r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]=,]+)):(?P<port>[0-9]{1,5})"
)


def members_of(text: str, where: str = "--members") -> Mapping[str, Endpoint]:
    """The nodes that a text names: NAME=HOST:PORT,NAME=HOST:PORT..."""
    found: dict[str, Endpoint] = {}
    for one in text.split(",") if text else ():
        match = _MEMBER.fullmatch(one.strip())
        if match is None or not 1 <= int(match["port"]) <= 65_535:
            raise BadValue(where, one, "write NAME=HOST:PORT,NAME=HOST:PORT...")
        if match["name"] in found:
            raise BadValue(where, match["name"], "name each node once")
        found[match["name"]] = Endpoint(match["six"] or match["host"], int(match["port"]))
    if len(found) > NODES_MAX:
        raise BadValue(where, len(found), f"name at most {NODES_MAX} nodes")
    return found


def parse_dns(url: str, where: str) -> tuple[str, int]:
    """The name and port of dns://NAME:PORT."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port = None
    if port is None or not parts.hostname or parts.path or parts.query or parts.username:
        raise BadValue(where, url, "write dns://NAME:PORT")
    return parts.hostname, port


def is_list(text: str) -> bool:
    """Whether members are said, and not found out."""
    return "://" not in text.partition(",")[0]


def _parse_members(text: str, where: str) -> str:
    if is_list(text):
        members_of(text, where)
    elif text.startswith(DNS):
        parse_dns(text, where)
    else:
        try:
            parse_url(text)
        except BadValue as error:
            remedy = "write NAME=HOST:PORT,..., dns://NAME:PORT, or the URL of a Redis"
            raise BadValue(where, redacted(text), f"{remedy} ({error.remedy})") from None
    return text


def _parse_advertise(text: str, where: str) -> str:
    return str(ADDRESS.parse(text, where)) if text else ""


ADVERTISE: Final = SettingType(_parse_advertise, ADDRESS.metavar)
MEMBERS: Final = SettingType(_parse_members, "NAME=HOST:PORT,...|URL")


@dataclass(frozen=True, kw_only=True)
class NodeSettings(AccessSettings):
    """Nodes of a cluster."""

    node: Annotated[
        str,
        Setting(
            "the name of this node: its caller in the access file, granted report", None, "NAME"
        ),
    ] = ""
    members: Annotated[
        str,
        Setting(
            "all nodes, this one too, each with the address of its --listen; or where they are "
            "found: dns://NAME:PORT, or redis://... for leases",
            MEMBERS,
            secret=True,
        ),
    ] = ""
    advertise: Annotated[
        str,
        Setting(
            "where the others reach this node, if --members finds them; else its --listen",
            ADVERTISE,
        ),
    ] = ""
    look_s: Annotated[
        float, Setting("between two looks at who the nodes are", seconds(0.05, 3_600))
    ] = 1.0
    lease_s: Annotated[
        float,
        Setting("how long a node's lease in Redis is good without a renewal", seconds(0.2, 3_600)),
    ] = 10.0
    home_s: Annotated[
        float,
        Setting(
            "how long a node that is found no more stays the home of its channels",
            seconds(0, 30 * 86_400),
        ),
    ] = 30.0
    node_token: Annotated[
        str,
        Setting(
            "what this node says to the others; without it, its --tls-cert says who it is",
            metavar="TOKEN",
            secret=True,
        ),
    ] = ""
    node_ca: Annotated[
        str,
        Setting(
            "authorities of the other nodes' certificates, PEM; else the machine's own",
            metavar="FILE",
        ),
    ] = ""
    report_s: Annotated[
        float,
        Setting("between a node's reports of what its accounts attempted", seconds(0.01, 60)),
    ] = 0.05
    gone_s: Annotated[
        float,
        Setting(
            "a node that does not answer for so long is no master of accounts", seconds(0.1, 600)
        ),
    ] = 0.5
    suppression: Annotated[
        str, Setting("how a fraction of publishes is refused", one_of(*REJECTIONS))
    ] = ERROR_DIFFUSION
    estimate: Annotated[
        str, Setting("how a master finds out how much an account is over", one_of(*FORMS))
    ] = LADDER
    node_ratio: Annotated[
        int,
        Setting(
            "times its limit that an account may reach on one node, which acts at once; "
            "0 is no such bound",
            whole(0, 1_000),
        ),
    ] = 2
    channel_ratio: Annotated[
        int,
        Setting(
            "times its account's limit that one channel may reach, which acts at once; "
            "0 is no such bound",
            whole(0, 1_000),
        ),
    ] = 0

    def check(self) -> None:
        """Raise for a node without the others, without a name among them, or without a secret."""
        super().check()
        if bool(self.node) != bool(self.members):
            raise BadValue("--node", self.node, "give --node and --members together")
        if not self.node:
            return
        if is_list(self.members):
            self._check_list()
        elif self.lease_s < 2 * self.look_s:
            remedy = "give at least twice --look-s, or leases run out between two looks"
            raise BadValue("--lease-s", self.lease_s, remedy)
        if not self.access:
            remedy = "give a file in which each node is a caller with the grant report"
            raise BadValue("--access", "", remedy)
        if not self.node_token and not self.tls_cert:
            remedy = "give this node's token, or a certificate that the others know it by"
            raise BadValue("--node-token", "", remedy)

    def _check_list(self) -> None:
        if self.node not in members_of(self.members):
            raise BadValue("--members", self.members, f"name this node, {self.node!r}, too")
        tags: dict[int, str] = {}
        for name in members_of(self.members):
            other = tags.setdefault(tag_of(name), name)
            if other != name:
                remedy = f"its positions would be those of {other!r}: give it another name"
                raise BadValue("--members", name, remedy)


def suppress_settings(settings: NodeSettings) -> SuppressSettings:
    """The node's side; how long silence may last goes by how often there are reports."""
    report_us = int(settings.report_s * _US)
    return SuppressSettings(
        rejection=settings.suppression,
        interval_us=report_us,
        early_us=min(report_us, _NODE.early_us),
        heartbeat_us=max(2 * report_us, _NODE.heartbeat_us),
        # A master that dies is replaced before an account is held as if this node were cut off.
        doubt_us=max(4 * report_us, int(settings.gone_s * _US) + 2 * _timeout_us(settings)),
        fuse_ratio=settings.node_ratio,
    )


def master_settings(settings: NodeSettings) -> SuppressMasterSettings:
    """The master's side, likewise."""
    report_us = int(settings.report_s * _US)
    return SuppressMasterSettings(
        form=settings.estimate,
        delay_us=max(2 * report_us, _MASTER.delay_us),
        valid_us=max(4 * report_us, _MASTER.valid_us),
        silent_us=max(4 * report_us, _MASTER.silent_us),
    )


def peer_settings(settings: NodeSettings) -> RedisSettings:
    """How this node speaks to the others."""
    tls = bool(settings.tls_cert)
    return RedisSettings(
        tls_name=tls_name(settings),
        password=settings.node_token,
        timeout_us=_timeout_us(settings),
        tls=tls,
        tls_ca=settings.node_ca,
        tls_cert=settings.tls_cert if tls else "",
        tls_key=settings.tls_key if tls else "",
        client_name=settings.node,
    )


def tls_name(settings: NodeSettings) -> str:
    """What the other nodes' certificates are for, if not their addresses."""
    return parse_dns(settings.members, "--members")[0] if settings.members.startswith(DNS) else ""


def _timeout_us(settings: NodeSettings) -> int:
    return max(2 * int(settings.report_s * _US), _TIMEOUT_US_MIN)
