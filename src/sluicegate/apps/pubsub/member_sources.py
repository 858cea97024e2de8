"""Member sources: where the nodes of a cluster are found, if they are not said.

    dns://NAME:PORT       each address of a name is a node, and says by what name it goes
    redis://...           each node holds its name, with its address, as a lease in Redis

Bound: `NODES_MAX` addresses of a name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, final

from sluicegate.apps.pubsub.node_settings import (
    DNS,
    NodeSettings,
    is_list,
    parse_dns,
    peer_settings,
)
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.kernels.hash_ring import NODES_MAX
from sluicegate.resilience.hosts.sources import dns_source, split_host
from sluicegate.stores.redis.client import open_client
from sluicegate.stores.redis.errors import reply_of
from sluicegate.stores.redis.leases import RedisLeases
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings, parse_url
from sluicegate.system import SystemChance

_US: Final = 1_000_000
KEY: Final = "sluicegate:pubsub:members"
RETRY_S: Final = 0.2
_log: Final = logging.getLogger("sluicegate.pubsub")


class MemberSource(Protocol):
    """Where nodes are found."""

    @property
    def complete(self) -> bool:
        """Whether everybody has said who it is, this node too."""
        ...

    async def begin(self) -> Mapping[str, Endpoint]:
        """Return who is found at first; what cannot be used raises."""
        ...

    async def look(self) -> Mapping[str, Endpoint]:
        """Return who is found now, this node or not; `Unavailable` if nobody knows."""
        ...

    async def close(self) -> None:
        """Be found no more."""
        ...


@final
class LeasedMembers:
    """Nodes that hold leases in Redis, this one among them."""

    complete = True

    def __init__(
        self, settings: RedisSettings, node: str, address: Endpoint, lease_us: int, chance: Chance
    ) -> None:
        self._client = open_client(settings, chance)
        self._leases = RedisLeases(self._client, KEY)
        self._node = node
        self._address = str(address)
        self._lease_us = lease_us

    async def begin(self) -> Mapping[str, Endpoint]:
        """Wait for a lease of this name that is about to run out, and no longer."""
        await self._client.connect()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._lease_us / 1e6 + 1
        while True:
            answer = await self._leases.hold(self._node, self._address, self._lease_us)
            if not answer.taken_with:
                return _endpoints(answer.held)
            if loop.time() > end_s:
                remedy = f"the node at {answer.taken_with} goes by it; give each a name of its own"
                raise BadValue("--node", self._node, remedy)
            await asyncio.sleep(RETRY_S)

    async def look(self) -> Mapping[str, Endpoint]:
        """Renew the lease."""
        answer = await self._leases.hold(self._node, self._address, self._lease_us)
        if answer.taken_with:
            detail = f"the node at {answer.taken_with} goes by the name {self._node} now"
            raise Unavailable("the lease in Redis", detail)
        return _endpoints(answer.held)

    async def close(self) -> None:
        """Let go of the lease."""
        try:
            await self._leases.let_go(self._node, self._address)
        except Unavailable as error:
            _log.warning("the lease stays until it runs out: %s", error)
        await self._client.close()


def _endpoints(held: Mapping[str, str]) -> Mapping[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for name, address in held.items():
        try:
            found[name] = Endpoint(*split_host(address))
        except BadValue as error:
            _log.error("%s holds no address of a node: %s", name, error)
    return found


@final
class NamedMembers:
    """A node at each address of a name; each is asked what it is called."""

    def __init__(self, name: str, port: int, peer: RedisSettings, chance: Chance) -> None:
        self._name = name
        self._resolve = dns_source(name, port)
        self._peer = peer
        self._chance = chance
        self._links: dict[str, RedisNode] = {}
        self._names: dict[str, str] = {}  # by address

    @property
    def complete(self) -> bool:
        """Whether each address has an answer, so that of this node, when it listens."""
        return len(self._names) == len(self._links)

    async def begin(self) -> Mapping[str, Endpoint]:
        """Look for the first time; nodes that start at the same time do not listen yet."""
        return await self.look()

    async def look(self) -> Mapping[str, Endpoint]:
        """Look the name up, and ask who is not known yet or has gone."""
        try:
            hosts = await asyncio.to_thread(self._resolve)
        except OSError as error:
            raise Unavailable(f"the name {self._name}", error.strerror or str(error)) from None
        for host in self._links.keys() - set(hosts):
            self._names.pop(host, None)
            await self._links.pop(host).close()
        for host in hosts[:NODES_MAX]:
            if host not in self._links:
                endpoint = Endpoint(*split_host(host))
                self._links[host] = RedisNode(endpoint, self._peer, self._chance)
        await asyncio.gather(*(self._ask(host, link) for host, link in self._links.items()))
        return {name: self._links[host].endpoint for host, name in self._names.items()}

    async def close(self) -> None:
        """Ask no more."""
        await asyncio.gather(*(link.close() for link in self._links.values()))

    async def _ask(self, host: str, link: RedisNode) -> None:
        """Learn its name; one that does not answer goes by the name that it had."""
        try:
            reply = await reply_of(link.call("SG.NODE"), f"the node at {host}")
        except Unavailable as error:
            _log.debug("%s", error)
            return
        if isinstance(reply, bytes):
            self._names[host] = reply.decode("utf-8", "replace")


def address_of(settings: NodeSettings, listen: Sequence[str]) -> Endpoint:
    """Where the others reach this node."""
    text = settings.advertise or next((one for one in listen if not one.startswith("unix:")), "")
    host, port = split_host(text)
    if not settings.advertise and host in ("0.0.0.0", "::"):
        remedy = f"it listens on {text}: say by which address the others reach it"
        raise BadValue("--advertise", "", remedy)
    return Endpoint(host, port)


def source_of(settings: NodeSettings, listen: Sequence[str]) -> MemberSource | None:
    """Where members are found; None if they are said. Made within the loop that uses it."""
    if not settings.node or is_list(settings.members):
        return None
    if settings.members.startswith(DNS):
        name, port = parse_dns(settings.members, "--members")
        return NamedMembers(name, port, peer_settings(settings), SystemChance())
    return LeasedMembers(
        parse_url(settings.members),
        settings.node,
        address_of(settings, listen),
        int(settings.lease_s * _US),
        SystemChance(),
    )
