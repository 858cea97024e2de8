"""Nodes: the channels whose home is another node, as this one has them.

A channel's home is the node that consistent hashing gives it, or its part of a log in Kafka, among
all members, dead or alive: it is the one writer of its history. A publish is passed on, with a
deadline and a bound; accepted means accepted there. While a home does not answer, publishes to its
channels are refused at once, and nothing else is held up by them.

A home that said goodbye is being restarted. It did not accept the requests that it had not answered
by then. So this node holds them, with later requests to that home, until the home is back, for at
most `RETURN_S`. Bounds: `FORWARDS_MAX` held requests for each home, `HELD_BYTES_MAX` for all.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar, final

from sluicegate.apps.pubsub.channel import ChannelKey, Gap, Message
from sluicegate.apps.pubsub.feed import (
    Feed,
    FeedWindow,
    RemoteReading,
    message_of,
    name_of,
    of_home,
)
from sluicegate.apps.pubsub.histories import homes_of_parts, part_of
from sluicegate.apps.pubsub.node_settings import NodeSettings, tls_name
from sluicegate.apps.pubsub.presence import Member, MembersPage, Place, data_text
from sluicegate.apps.pubsub.service import HistoryPage
from sluicegate.client.pubsub import NEVER_S, Left, PubSubClient
from sluicegate.cluster.node import ClusterNode
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import (
    BadValue,
    Forbidden,
    Refused,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.reasons import HOME_UNAVAILABLE, OVERLOADED, Reason
from sluicegate.kernels.backoff import BackoffSettings
from sluicegate.kernels.hash_ring import Rendezvous
from sluicegate.stores.redis.settings import Endpoint

T = TypeVar("T")
RULE_ID: Final = "home"
RETRY_US: Final = 1_000_000
LOOK_S: Final = 0.1  # between two looks at who is connected
SUSPECT_S: Final = 0.2  # that a home may take to answer until it is asked whether it is there
BUFFER_MAX: Final = 4_096  # messages of a channel that wait to be taken in
RETURN_S: Final = 10.0  # that a home may take to be back after its goodbye
HELD_BYTES_MAX: Final = 16 << 20  # data of held requests to all homes, as JSON
COSTS_MAX: Final = 10_000
FEED_BYTES: Final = 16 << 20  # messages of other nodes that are held for subscribers of this one
FORWARD_S: Final = 2.0  # deadline of a publish that another node must accept
FORWARDS_MAX: Final = 1_000  # publishes that one other node owes an answer
# For so long a channel's cost is believed: subscribers come and go, and one publish asks again.
COST_S: Final = 1.0
ANSWER_BYTES_MAX: Final = 16 << 20  # a page, and a message that JSON writes longer than it came
_BACKOFF: Final = BackoffSettings(base_us=100_000, wait_us_max=1_000_000)


@final
class Peer:
    """Another node."""

    def __init__(
        self, client: PubSubClient, endpoint: Endpoint | None = None, left_s: float = NEVER_S
    ) -> None:
        self.client = client
        self.endpoint = endpoint
        self.under_way = 0
        self.held: dict[int, asyncio.Future[None]] = {}  # of `under_way`, by their turns
        self._left_s = left_s  # when it said goodbye at another endpoint
        self.feeds: dict[ChannelKey, Feed] = {}
        self._connected = False  # at the last look, and how often it had broken by then
        self._breaks = 0

    def look(self, *, live: bool) -> None:
        """Interrupt who reads from a node that is lost since the last look."""
        connected = self.client.connected and live
        # A connection may come and break between two looks.
        broken = self._connected or self.client.breaks != self._breaks
        if broken and not connected:
            for feed in list(self.feeds.values()):
                feed.interrupt()
        self._connected, self._breaks = connected, self.client.breaks

    @property
    def left_s(self) -> float:
        """When it said goodbye."""
        return max(self._left_s, self.client.left_s)

    def let_on(self) -> None:
        """Have those that are held try again, in the order in which they came."""
        held, self.held = sorted(self.held.items()), {}
        for _, back in held:
            if not back.done():
                back.set_result(None)


@final
class ChannelCosts:
    """What a publish cost lately in channels whose home is another node, newest last."""

    def __init__(self) -> None:
        self._costs: dict[ChannelKey, tuple[int, float]] = {}

    def note(self, key: ChannelKey, cost: int, now_s: float) -> None:
        """Learn what one cost; the oldest is forgotten for it."""
        self._costs.pop(key, None)
        if cost > 0:
            self._costs[key] = (cost, now_s)
            if len(self._costs) > COSTS_MAX:
                del self._costs[next(iter(self._costs))]

    def find(self, key: ChannelKey, now_s: float) -> int:
        """What one costs now; 0 if that is not known, or was too long ago."""
        cost, noted_s = self._costs.get(key, (0, 0.0))
        return cost if now_s - noted_s < COST_S else 0


@final
class Nodes:
    """Made within the loop that uses it; `close` ends what it has started."""

    def __init__(
        self,
        settings: NodeSettings,
        cluster: ClusterNode,
        members: Mapping[str, Endpoint],
        parts: int = 0,
    ) -> None:
        """`parts` of a log that all nodes share; 0 is files, each node's own."""
        self.refused: dict[str, int] = {}
        self.forwarded = 0
        self.count = 0  # of nodes, this one too
        self._name = settings.node
        self._cluster = cluster
        self._settings = settings
        self._count_parts = parts
        self.costs = ChannelCosts()
        self._window = FeedWindow(FEED_BYTES)
        self._peers: dict[str, Peer] = {}
        self._turns = itertools.count()
        self._held_bytes = 0
        self._ends: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self.change_members(members)

    def change_members(self, members: Mapping[str, Endpoint]) -> None:
        """Take over who there is; who reads from a node that is none any more is to be moved."""
        self.count = len(members)
        self._homes = Rendezvous(dict.fromkeys(members, 1.0))
        parts = self._count_parts
        self._parts = homes_of_parts(members, parts) if parts else ()
        left_s = {name: peer.left_s for name, peer in self._peers.items()}
        for name, peer in list(self._peers.items()):
            if members.get(name) != peer.endpoint:
                del self._peers[name]
                self._end(self._close_peer(peer))
        for name, endpoint in members.items():
            if name != self._name and name not in self._peers:
                client = _client_of(self._settings, endpoint)
                self._peers[name] = Peer(client, endpoint, left_s.get(name, NEVER_S))

    async def _close_peer(self, peer: Peer) -> None:
        peer.look(live=False)
        peer.let_on()
        for feed in list(peer.feeds.values()):
            await feed.close()
        await peer.client.close()

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def start(self) -> None:
        """Begin to look at who is connected."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def close(self) -> None:
        """Read and pass on no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        feeds = [feed for peer in self._peers.values() for feed in peer.feeds.values()]
        await asyncio.gather(*(feed.close() for feed in feeds), *self._ends)
        await asyncio.gather(*(peer.client.close() for peer in self._peers.values()))

    def home_of(self, key: ChannelKey) -> str:
        """Return the home of a channel; "" if it is here."""
        if self._parts:
            home = self._parts[part_of(key, len(self._parts))]
        else:
            home = self._homes.owner(name_of(key))
        return "" if home == self._name else home

    def peer(self, home: str) -> Peer:
        """A home elsewhere."""
        return self._peers[home]

    def home_of_part(self, part: int) -> str:
        """The home of a part of a shared log."""
        return self._parts[part]

    def parts_of(self, name: str) -> Sequence[int]:
        """The parts of a shared log that have their home at a node."""
        return [part for part, home in enumerate(self._parts) if home == name]

    async def publish(self, home: str, key: ChannelKey, data: object, *, passed: bool) -> int:
        """Have a message accepted at its channel's home, and learn what it cost."""
        name, timeout_ms = name_of(key), FORWARD_S * 1_000

        async def publish(client: PubSubClient) -> int:
            position = await client.publish(name, data, timeout_ms=timeout_ms, passed=passed)
            self.costs.note(key, client.cost, asyncio.get_running_loop().time())
            return position

        return await self._pass_on(home, publish, data)

    def cost_of(self, key: ChannelKey) -> int:
        """What a publish costs in a channel elsewhere; 0 if that is not known."""
        return self.costs.find(key, asyncio.get_running_loop().time())

    async def enter(self, home: str, place: Place, data: object, held: int) -> int:
        """Have a member enter there; it enters again if the connection breaks."""
        name = name_of(place.key)
        return await self._pass_on(
            home, lambda client: client.enter(name, place.member, data, held=held), data
        )

    async def leave(self, home: str, place: Place) -> None:
        """Have a member leave there."""
        name = name_of(place.key)
        await self._pass_on(home, lambda client: client.leave(name, place.member))

    async def members(self, home: str, key: ChannelKey, after: str, bytes_max: int) -> MembersPage:
        """A page of who is in a channel there."""
        name = name_of(key)
        page = await self._pass_on(
            home, lambda client: client.members_page(name, after, bytes_max=bytes_max)
        )
        members = {one.member: Member(data_text(one.data), one.position) for one in page.members}
        return MembersPage(members, page.next or "")

    async def hear_usage(self, account: str) -> None:
        """Hear from its master what an account has used at all nodes."""
        await self._cluster.hear_usage(account)

    async def _pass_on(
        self, home: str, ask: Callable[[PubSubClient], Awaitable[T]], data: object = None
    ) -> T:
        turn, end_s = next(self._turns), asyncio.get_running_loop().time() + RETURN_S
        while True:
            peer = self._peers.get(home)
            if peer is None:
                self._refuse(HOME_UNAVAILABLE)
            if peer.under_way >= FORWARDS_MAX:
                self._refuse(OVERLOADED)
            peer.under_way += 1
            try:
                if self._away(home, peer) or peer.held:
                    await self._hold(peer, turn, data, end_s)
                else:
                    return await self._ask(home, peer, ask, end_s)
            except Left:
                pass
            finally:
                peer.under_way -= 1

    async def _ask(
        self, home: str, peer: Peer, ask: Callable[[PubSubClient], Awaitable[T]], end_s: float
    ) -> T:
        self.forwarded += 1
        loop = asyncio.get_running_loop()
        suspecting = loop.call_later(SUSPECT_S, self._cluster.suspect, home)
        try:
            return await ask(peer.client)
        except Left:
            raise
        except Refused as refused:
            # One that is back may need a moment until it is the home again.
            if refused.decision.reason is not HOME_UNAVAILABLE or loop.time() >= _end_s(
                peer, end_s
            ):
                raise
            await asyncio.sleep(LOOK_S)
            raise Left(home, "it is not the home again yet") from None
        except (Unavailable, Unauthenticated, Forbidden) as error:
            raise of_home(f"the node {home}, which is the channel's home,", error) from None
        finally:
            suspecting.cancel()

    async def _hold(self, peer: Peer, turn: int, data: object, end_s: float) -> None:
        """Return when a home that said goodbye may be back."""
        loop, end_s = asyncio.get_running_loop(), _end_s(peer, end_s)
        if loop.time() >= end_s:
            self._refuse(HOME_UNAVAILABLE)
        size = 0 if data is None else len(data_text(data))
        if self._held_bytes + size > HELD_BYTES_MAX:
            self._refuse(HOME_UNAVAILABLE)
        back: asyncio.Future[None] = loop.create_future()
        peer.held[turn] = back
        self._held_bytes += size
        try:
            async with asyncio.timeout_at(end_s):
                await back
        except TimeoutError:
            self._refuse(HOME_UNAVAILABLE)
        finally:
            self._held_bytes -= size
            peer.held.pop(turn, None)

    def subscribe(self, home: str, key: ChannelKey, after: int) -> RemoteReading:
        """Read along, with all others here who do."""
        peer = self._peers[home]
        if self._away(home, peer):
            self._refuse(HOME_UNAVAILABLE)
        feed = peer.feeds.get(key)
        if feed is None:
            feed = peer.feeds[key] = Feed(key, peer.client, self._window, self._end_feed)
        return RemoteReading(feed, after)

    async def read(
        self, home: str, key: ChannelKey, after: int, count: int, bytes_max: int
    ) -> HistoryPage:
        """Read the history at its channel's home."""
        peer = self._peers[home]
        if self._away(home, peer):
            self._refuse(HOME_UNAVAILABLE)
        messages: list[Message] = []
        cut = newest = size = 0
        gap: Gap | None = None
        try:
            while len(messages) < count and size < bytes_max:
                page = await peer.client.read(name_of(key), after, count - len(messages))
                cut, newest = max(cut, page.cut), page.newest
                if page.gap is not None:
                    if messages:  # the next page says it to who asks behind these
                        break
                    gap = Gap(*page.gap)
                if not page.messages:
                    break
                for one in page.messages:
                    if size >= bytes_max:
                        break
                    messages.append(message_of(key, one))
                    size += messages[-1].size
                after = messages[-1].position
        except (Unavailable, Unauthenticated, Forbidden) as error:
            raise of_home(f"the node {home}, which is the channel's home,", error) from None
        return HistoryPage(messages, cut, newest, gap)

    def state(self) -> object:
        """What there is to see of each other node."""
        return {
            name: {
                "connected": peer.client.connected,
                "under_way": peer.under_way,
                "held": len(peer.held),
                "feeds": len(peer.feeds),
            }
            for name, peer in self._peers.items()
        }

    # Inside.

    def _away(self, home: str, peer: Peer) -> bool:
        tried = peer.client.reconnects > 0 or peer.client.left_s > NEVER_S
        return home not in self._cluster.limiter.live or (tried and not peer.client.connected)

    def _refuse(self, reason: Reason) -> NoReturn:
        self.refused[reason.name] = self.refused.get(reason.name, 0) + 1
        raise Refused(Decision(False, 0, RETRY_US, RETRY_US, reason, RULE_ID))

    def _end_feed(self, feed: Feed) -> None:
        """End a feed that failed, or that nobody reads."""
        for peer in self._peers.values():
            if peer.feeds.get(feed.key) is feed:
                del peer.feeds[feed.key]
                feed.stop()
                self._end(feed.close())

    async def _look(self) -> None:
        """Tell who reads what has its home on a node that does not answer any more."""
        while True:
            await asyncio.sleep(LOOK_S)
            live = self._cluster.limiter.live
            for name, peer in self._peers.items():
                peer.look(live=name in live)
                if peer.held and not self._away(name, peer):
                    peer.let_on()


def _end_s(peer: Peer, end_s: float) -> float:
    """Return until when a publish waits for a home that said goodbye."""
    return min(end_s, peer.left_s + RETURN_S)


def _client_of(settings: NodeSettings, endpoint: Endpoint) -> PubSubClient:
    connecting: dict[str, Any] = {"proxy": None, "max_size": ANSWER_BYTES_MAX}
    scheme = "ws"
    if settings.tls_cert:
        scheme = "wss"
        connecting["ssl"] = _context_of(settings)
        if name := tls_name(settings):
            connecting["server_hostname"] = name
    return PubSubClient(
        f"{scheme}://{endpoint}",
        token=settings.node_token,
        timeout_ms=FORWARD_S * 1_000,
        buffer_max=BUFFER_MAX,
        backoff=_BACKOFF,
        final=(),  # a node that is not known yet, or no more, may be known soon
        **connecting,
    )


def _context_of(settings: NodeSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.node_ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadValue("--node-ca", settings.node_ca, f"it cannot be used: {error}") from None
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise BadValue("--tls-cert", settings.tls_cert, f"it cannot be used: {error}") from None
    return context
