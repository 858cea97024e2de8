"""Members: who the nodes of a cluster are, and how that changes.

    NAME=HOST:PORT,...    said; never changes
    dns://..., redis://   found (`member_sources.py`)

A source is asked again and again. A node that is found is a member at once; one that is found no
more stays one for `home_us`, since an answer may leave somebody out who is there. A source that
does not answer changes nothing.

Nodes that begin together do not know each other before they listen. Until each that is found has
said who it is, or for `SETTLE_S`, nobody should take itself for the home of what is others'.

Bound: `NODES_MAX` members.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, final

from sluicegate.apps.pubsub.channel import tag_of
from sluicegate.apps.pubsub.member_sources import address_of, source_of
from sluicegate.apps.pubsub.node_settings import NodeSettings, members_of
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.kernels.hash_ring import NODES_MAX
from sluicegate.stores.redis.settings import Endpoint

NODE: Final = "node"  # what one goes by that is alone
SETTLE_S: Final = 2.0
SETTLE_LOOK_S: Final = 0.1
NOWHERE: Final = Endpoint("", 0)  # that nobody else has to reach
_US: Final = 1_000_000
_log: Final = logging.getLogger("sluicegate.pubsub")


@final
class Membership:
    """The nodes, as this one knows them. Made within the loop that uses it."""

    def __init__(self, settings: NodeSettings, listen: Sequence[str], clock: Clock) -> None:
        self._source = source_of(settings, listen)
        self._clock = clock
        self._unknown = False  # the source does not answer, and that was logged
        self._list = MemberList(
            settings.node or NODE,
            address_of(settings, listen) if self._source else NOWHERE,
            int(settings.home_s * _US),
        )
        if self._source is None:
            self._list.members = members_of(settings.members) or self._list.members

    @property
    def found(self) -> bool:
        """Whether they are found, and come and go; else they are said, and stay."""
        return self._source is not None

    @property
    def all(self) -> Mapping[str, Endpoint]:
        """By name, this node among them."""
        return self._list.members

    @property
    def complete(self) -> bool:
        """Whether nobody is found of whom it is not known who it is."""
        return self._source is None or self._source.complete

    async def begin(self) -> None:
        """Find them for the first time, and be found; what cannot be used raises."""
        if self._source is not None:
            self._list.update(await self._source.begin(), self._clock.now_us())

    async def look(self, *, change: bool = True) -> bool:
        """Find them again, and say still to be here; whether the source answered.

        Without `change` they stay who they are.
        """
        assert self._source is not None
        try:
            found = await self._source.look()
        except Unavailable as error:
            if not self._unknown:
                _log.error("nobody knows who comes and goes: %s", error)
            self._unknown = True
            return False
        self._unknown = False
        if change:
            self._list.update(found, self._clock.now_us())
        return True

    async def close(self) -> None:
        """Be found no more."""
        if self._source is not None:
            await self._source.close()


@final
class MemberList:
    """Members over several answers of a source."""

    def __init__(self, node: str, address: Endpoint, home_us: int) -> None:
        self.members: Mapping[str, Endpoint] = {node: address}
        self._own = (node, address)
        self._home_us = home_us
        self._seen_us: dict[str, int] = {}

    def update(self, found: Mapping[str, Endpoint], now_us: int) -> Mapping[str, Endpoint]:
        """Return the members, now that these were found."""
        node, address = self._own
        members = {**self.members, **found, node: address}
        self._seen_us.update(dict.fromkeys(found, now_us))
        for name in list(members):
            if name != node and now_us - self._seen_us.get(name, now_us) > self._home_us:
                del members[name]
        self._seen_us = {name: at for name, at in self._seen_us.items() if name in members}
        self.members = _without_doubles(members, node)
        return self.members


def _without_doubles(members: Mapping[str, Endpoint], node: str) -> Mapping[str, Endpoint]:
    """Those whose positions can be told apart, this node first."""
    kept: dict[str, Endpoint] = {}
    tags: dict[int, str] = {}
    for name in sorted(members, key=lambda one: (one != node, one)):
        other = tags.setdefault(tag_of(name), name)
        if other != name:
            _log.error("%s is left out: its positions would be those of %s", name, other)
        elif len(kept) >= NODES_MAX:
            _log.error("%s is left out: there are %s nodes already", name, f"{NODES_MAX:,}")
        else:
            kept[name] = members[name]
    return kept
