"""App: the pub/sub service, its parts in the order in which they need one another.

Nothing here decides or speaks a protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar, Final, final

from sluicegate import __version__
from sluicegate.apps.pubsub.account_limits import AccountLimits
from sluicegate.apps.pubsub.fan_out import FanOut
from sluicegate.apps.pubsub.handler import SCHEMAS, PubSubHandler
from sluicegate.apps.pubsub.histories import Histories
from sluicegate.apps.pubsub.home_parts import HomeParts
from sluicegate.apps.pubsub.members import NODE, SETTLE_LOOK_S, SETTLE_S, Membership
from sluicegate.apps.pubsub.metrics import of_accounts, of_cluster, of_messages, of_sockets
from sluicegate.apps.pubsub.node_settings import master_settings, peer_settings, suppress_settings
from sluicegate.apps.pubsub.nodes import FORWARDS_MAX, Nodes
from sluicegate.apps.pubsub.presence import GRACE_S, Presence, PresenceBounds
from sluicegate.apps.pubsub.send_pace import SessionBounds
from sluicegate.apps.pubsub.service import READ_BYTES, PubSub
from sluicegate.apps.pubsub.session import SUBPROTOCOL, PubSubSession
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.apps.pubsub.usage_file import UsageSaver
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.account_usage import AccountUsage
from sluicegate.cluster.node import ClusterNode
from sluicegate.command_line.text import counted
from sluicegate.contracts.access import Access, Identity, PeopleAccess
from sluicegate.doors.http.cors import Cors
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.replies import UNAUTHENTICATED
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.resp.cluster.commands import CLUSTER
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.doors.websocket.door import WebSocketDoor
from sluicegate.doors.websocket.session import Socket
from sluicegate.doors.websocket.settings import WebSocketSettings
from sluicegate.policies.quota.usage import UsagePlan, UsageSettings
from sluicegate.service.access_file import ReloadedAccess
from sluicegate.service.app import App, Site
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.signed_tokens import SignedTokens
from sluicegate.service.status import Part
from sluicegate.system import SystemChance
from sluicegate.telemetry.prometheus import MetricFamily

TRIM_S: Final = 1.0
ACCOUNTS_SHOWN_MAX: Final = 1_000
NODE_HEAD_BYTES: Final = 4_096
_US: Final = 1_000_000
_log: Final = logging.getLogger("sluicegate.pubsub")


@final
class PubSubApp(App[PubSubSettings]):
    """Channels that accounts publish in and subscribe to."""

    name: ClassVar[str] = "pubsub"

    def __init__(self, settings: PubSubSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        now_us = self.clock.now_us()
        self.limits = AccountLimits(
            settings.limits,
            settings.account_rate,
            settings.account_burst,
            UsagePlan(
                0, settings.account_month, settings.account_connections, settings.account_channels
            ),
            settings.hour_ratio,
        )
        # A start later than another has a higher number.
        self.usage = AccountUsage(
            settings.node or NODE, now_us, self.limits.plan_of, usage_settings(settings)
        )
        self.presence = Presence(
            PresenceBounds(
                presence_channel_max=settings.presence_channel_max,
                presence_member_bytes=settings.presence_member_bytes,
                presence_account_bytes=settings.presence_account_bytes,
            )
        )
        self.histories = Histories(settings.event_log_parts if settings.event_log else 1)
        self._saver = UsageSaver(settings.history, self.usage.meter, self.histories.positions)
        self._ready = False  # the history is read
        self.limiter = AccountLimiter(
            settings.node or NODE,
            now_us,
            self.limits.limit_of,
            SystemChance(),
            now_us,
            node=suppress_settings(settings),
            master=master_settings(settings),
        )
        self.members = Membership(settings, settings.listen, self.clock)
        members = self.members.all
        self.node = ClusterNode(
            self.limiter,
            members,
            peer_settings(settings),
            self.clock,
            SystemChance(),
            gone_us=int(settings.gone_s * _US),
            usage=self.usage,
        )
        parts = self.histories.parts if settings.event_log else 0
        self.nodes = Nodes(settings, self.node, members, parts) if settings.node else None
        self.parts = HomeParts(
            settings,
            self.histories,
            self.nodes,
            self.usage.meter,
            self.presence,
            self.clock,
            found=self.members.found,
        )
        self.service = PubSub(
            self.histories,
            self.limiter,
            self.clock,
            self.nodes,
            self.usage.meter,
            self.presence,
            settings.channel_ratio,
            found=self.members.found,
        )
        self._session_bounds = SessionBounds(
            settings.subscriptions_max, settings.sent_rate, settings.sent_bytes
        )
        self.fan_out = FanOut(self._session_bounds, self.clock)
        self.signed: SignedTokens | None = None
        if settings.accepts_signed_tokens:
            self.signed = SignedTokens(settings, self.clock)
        self.cors = Cors(settings.origins) if settings.origins else None
        self.sockets = WebSocketDoor(
            self.clock, _socket_settings(settings), (SUBPROTOCOL,), self.cors
        )
        self.node_sockets = WebSocketDoor(self.clock, _node_sockets(settings), (SUBPROTOCOL,))
        self._node_bounds = SessionBounds(settings.channels_max, 0, 0)

    # Life.

    async def start(self) -> None:
        """Become the writer of the history, and read it."""
        if self.signed is not None and self.signed.keys.fetched:
            await self.signed.keys.refresh()
            self.background.start("signing keys", self.signed.keys.keep)
        await self.parts.begin()
        counted = await self._saver.begin(self.clock.now_us())
        if self.members.found:
            await self.members.begin()
            self.service.settled = self.members.complete
            self._take_over_members()
            self.background.start("members", self._follow_members)
        await self.parts.read(counted)
        await self._saver.save(positions=True)
        if self.nodes is not None:
            await self.parts.record_members(self.members.all)
            await self.nodes.start()
        await self.node.start()
        self.service.end_unowned(GRACE_S)
        self.background.start("history", self._trim)
        self.background.start("usage", self._saver.keep)
        if self.parts.shared:
            self.background.start("fence", self.parts.watch)
        self._ready = True
        if self.parts.shared:
            self.background.start("parts", self._change_parts)

    async def close(self) -> None:
        """Let what is under way become durable."""
        await self.service.close()
        await self.members.close()
        if self.nodes is not None:
            await self.nodes.close()
        await self.node.close()
        grace_us = int(self.settings.grace_s * _US)
        await asyncio.to_thread(self.histories.close, grace_us)
        await asyncio.sleep(0)  # what became durable in that is charged
        await self._saver.close()

    def reload(self) -> None:
        """Read the limits again."""
        self.limits.reload()

    # Doors.

    def access(self) -> PeopleAccess:
        """Callers of the access file, and clients that they have signed tokens for."""
        return ReloadedAccess(self.settings.access, self.settings.token, self.signed)

    def resp(self, access: Access) -> RespDoor | None:
        """Reports of the other nodes, in a cluster."""
        if not self.settings.node:
            return None
        return RespDoor(self.node, access, RespSettings(version=__version__), CLUSTER)

    def http(self, site: Site) -> HttpHandler:
        """Publish, subscribe, history."""
        settings = self.settings
        handler = PubSubHandler(
            self.service, site.access, site.hosts, settings.heartbeat_s, self._open_socket
        )
        handler.cors = self.cors
        return self.handler_of(site, handler.routes(), SCHEMAS, handler)

    def http_settings(self) -> HttpSettings:
        """A subscriber is a stream."""
        streams_max = self.settings.subscribers_max
        return replace(super().http_settings(), streams_max=streams_max, switch_offer=b"websocket")

    # What there is to see.

    def summary(self) -> str:
        """What can be read again."""
        where = "Kafka" if self.parts.shared else self.settings.history
        return f"{counted(self.histories.sum_of(len), 'message')} in {where}"

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        return {"history": self._history, "accounts": self._accounts, "cluster": self._cluster}

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of all parts."""
        yield from of_messages(self.histories, self.service.refused, self.nodes)
        yield from of_sockets(self.sockets.counts, self.fan_out)
        yield from of_accounts(self.limiter, self.presence)
        yield from of_cluster(self.node, self.nodes)

    # Inside.

    def _open_socket(self, request: HttpRequest, by: Identity | str, access: Access) -> HttpReply:
        """Open a WebSocket, or open and close it for the reason that a token is invalid."""
        if isinstance(by, str):
            return self.sockets.reject(request, UNAUTHENTICATED, by)
        of_node = self.service.is_node(by)
        bounds = self._node_bounds if of_node else self._session_bounds

        def open_session(socket: Socket) -> PubSubSession:
            return PubSubSession(
                socket, by, self.service, self.fan_out, bounds, self.clock, access.by_token
            )

        door = self.node_sockets if of_node else self.sockets
        if not of_node:
            self.service.check_connection(by.name)
        return door.accept(request, open_session)

    def _history(self) -> object:
        total = self.histories.sum_of
        histories = self.histories.by_part.values()
        return {
            "messages": total(len),
            "bytes": total(attrgetter("bytes")),
            "newest": max((one.newest for one in histories), default=0),
            "cut": max((one.cut for one in histories), default=0),
            "cut_by_bytes": total(attrgetter("cut_by_bytes")),
            "cut_by_age": total(attrgetter("cut_by_age")),
            "channels": total(lambda one: len(one.channels)),
            "parts": sorted(self.histories.by_part),
        }

    def _accounts(self) -> object:
        node, master = self.limiter.stats()
        return {"node": node._asdict(), "master": master._asdict()}

    def _cluster(self) -> object:
        now_us = self.clock.now_us()
        accounts = self.limiter.accounts(now_us)
        busiest = sorted(accounts, key=attrgetter("attempted"), reverse=True)[:ACCOUNTS_SHOWN_MAX]
        return {
            "at_us": now_us,
            "node": self.limiter.name,
            "members": sorted(self.limiter.members),
            "live": sorted(self.limiter.live),
            "failing": dict(self.node.failing),
            "reports": self.node.stats()._asdict(),
            "peers": {} if self.nodes is None else self.nodes.state(),
            "accounts": [
                {
                    **one._asdict(),
                    "usage": self.service.usage(one.account),
                    "warnings": [
                        warning._asdict() for warning in self.service.warnings(one.account)
                    ],
                }
                for one in busiest
            ],
        }

    def _take_over_members(self) -> None:
        members = self.members.all
        _log.info("the members are %s", ", ".join(sorted(members)))
        self.node.change_peers(members)
        if self.nodes is not None:
            self.nodes.change_members(members)

    async def _follow_members(self) -> None:
        """Take over who comes and goes."""
        loop, settled_s = asyncio.get_running_loop(), 0.0
        while True:
            pause_s = self.settings.look_s
            await asyncio.sleep(pause_s if self.service.settled else min(pause_s, SETTLE_LOOK_S))
            before = self.members.all
            # A lease is not to run out while the history is read.
            found = await self.members.look(change=self._ready)
            if not self._ready:
                continue
            if self.members.all != before:
                self._take_over_members()
                await self.parts.record_members(self.members.all)
            if found:
                self.service.move_readings()
            settled_s = settled_s or loop.time() + SETTLE_S
            self.service.settled |= self.members.complete or loop.time() > settled_s

    async def _change_parts(self) -> None:
        """Have here what has its home here; that takes longer than a lease may wait."""

        def move_readings() -> None:
            self.service.move_readings()
            self.service.end_unowned(GRACE_S)

        while True:
            await asyncio.sleep(self.settings.look_s)
            await self.parts.change(move_readings)

    async def _trim(self) -> None:
        while True:
            await asyncio.sleep(TRIM_S)
            self.histories.trim(self.clock.now_us())


def usage_settings(settings: PubSubSettings) -> UsageSettings:
    """How what is used up is reported, and where an account is restricted."""
    return UsageSettings(
        restrict_percent=round(settings.restrict_ratio * 100),
        interval_us=int(settings.usage_s * _US),
    )


def _socket_settings(settings: PubSubSettings) -> WebSocketSettings:
    longest = max(settings.message_bytes_max, settings.presence_member_bytes)
    return WebSocketSettings(
        message_bytes_max=settings.message_bytes_max,
        # A page, and one more message or member: JSON writes a character in six at most.
        reply_bytes_max=READ_BYTES + 6 * longest + NODE_HEAD_BYTES,
        frames_per_s=settings.received_rate,
        bytes_per_s=settings.received_bytes,
        heartbeat_s=settings.heartbeat_s,
        silence_s_max=4 * settings.heartbeat_s,
    )


def _node_sockets(settings: PubSubSettings) -> WebSocketSettings:
    """What another node may send is bounded where it comes from."""
    return replace(
        _socket_settings(settings),
        # The same message in other words: no character takes more than six.
        message_bytes_max=6 * settings.message_bytes_max + NODE_HEAD_BYTES,
        frames_per_s=1_000_000,
        bytes_per_s=1 << 30,
        under_way_max=FORWARDS_MAX,
        unread_bytes_max=1 << 20,
    )
