"""App: the pub/sub service, its parts in the order in which they need one another.

Nothing here decides or speaks a protocol.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar, Final, final

from sluicegate import __version__
from sluicegate.apps.pubsub.account_limits import AccountLimits
from sluicegate.apps.pubsub.channel import tag_of
from sluicegate.apps.pubsub.fan_out import FanOut
from sluicegate.apps.pubsub.fenced_log import FencedLog
from sluicegate.apps.pubsub.handler import SCHEMAS, PubSubHandler
from sluicegate.apps.pubsub.histories import (
    FILES,
    Histories,
    tag_of_part,
)
from sluicegate.apps.pubsub.history import ChannelHistory
from sluicegate.apps.pubsub.members import MemberList, address_of, source_of
from sluicegate.apps.pubsub.moves import Moves
from sluicegate.apps.pubsub.node_settings import (
    master_settings,
    members_of,
    peer_settings,
    suppress_settings,
)
from sluicegate.apps.pubsub.nodes import Nodes
from sluicegate.apps.pubsub.presence import GRACE_S, Presence
from sluicegate.apps.pubsub.service import PubSub
from sluicegate.apps.pubsub.session import SUBPROTOCOL, PubSubSession, SessionBounds
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.apps.pubsub.usage_file import SAVE_S, UsageFile
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.account_usage import AccountUsage
from sluicegate.cluster.node import ClusterNode
from sluicegate.command_line.text import counted
from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.event_log import EventLog
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.resp.cluster.commands import CLUSTER
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.doors.websocket.door import WebSocketDoor
from sluicegate.doors.websocket.session import Socket
from sluicegate.doors.websocket.settings import WebSocketSettings
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.policies.periods import month_of
from sluicegate.policies.usage import UsageMeter, UsagePlan, UsageSettings
from sluicegate.service.app import App, Site
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.status import Part
from sluicegate.stores.event_logs import KAFKA_SCHEMES, open_shared_log
from sluicegate.stores.files.log import FileLog
from sluicegate.stores.files.settings import FileLogSettings
from sluicegate.stores.redis.settings import Endpoint
from sluicegate.stores.urls import redacted
from sluicegate.system import SystemChance
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counter, counters, gauge

NODE: Final = "node"
NOWHERE: Final = Endpoint("", 0)  # that nobody else has to reach
ELSEWHERE: Final = 1 << 62  # no position is behind it
_WAIT_US: Final = 100_000  # for a log on other machines
SEGMENTS: Final = 8  # of the bytes that can be read again
SEGMENT_BYTES_MIN: Final = 1 << 16
TRIM_S: Final = 1.0
LOOK_S: Final = 1.0
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
        self.presence = Presence(settings.presence_channel_max, settings.presence_max)
        self._unsaved = False  # and that was logged
        self._usage_file = UsageFile(settings.history)
        self._files: FileLog | None = None
        self._fenced: dict[int, FencedLog] = {}  # by part, in Kafka
        self._source = source_of(settings, settings.listen)
        self._ready = False  # the history is read
        self._unseen = False  # the source of members does not answer, and that was logged
        self.histories = self._open_histories()
        self.limiter = AccountLimiter(
            settings.node or NODE,
            now_us,
            self.limits.limit_of,
            SystemChance(),
            now_us,
            node=suppress_settings(settings),
            master=master_settings(settings),
        )
        self._members = MemberList(
            settings.node or NODE,
            address_of(settings, settings.listen) if self._source else NOWHERE,
            int(settings.leave_s * _US),
        )
        if self._source is None:
            self._members.members = members_of(settings.members) or self._members.members
        members = self._members.members
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
        self.service = PubSub(
            self.histories,
            self.limiter,
            self.clock,
            self.nodes,
            self.usage.meter,
            self.presence,
            settings.channel_ratio,
            found=self._source is not None,
        )
        self.fan_out = FanOut()
        self.sockets = WebSocketDoor(self.clock, _socket_settings(settings), (SUBPROTOCOL,))
        self._session_bounds = SessionBounds(
            settings.subscriptions_max, settings.sent_rate, settings.sent_bytes
        )
        self.node_sockets = WebSocketDoor(self.clock, _node_sockets(settings), (SUBPROTOCOL,))
        self._node_bounds = SessionBounds(settings.channels_max, 0, 0)

    # Life.

    async def start(self) -> None:
        """Become the writer of the history, and read it."""
        if self._files is not None:
            await asyncio.to_thread(self._files.begin)
        else:
            await asyncio.to_thread(os.makedirs, self.settings.history, exist_ok=True)
        now_us = self.clock.now_us()
        counted, saved = await asyncio.to_thread(self._usage_file.begin, month_of(now_us))
        self.usage.meter.load(saved, now_us)
        if self._source is not None:
            members = self._members.update(await self._source.begin(), now_us)
            self._take_over(members)
            self.background.start("members", self._look_for_members)
        if self._files:
            await self._read(FILES, self.histories.by_part[FILES], counted.get(FILES, 0))
        else:
            await asyncio.gather(
                *(self._open_part(part, counted.get(part, ELSEWHERE)) for part in self._own_parts())
            )
        await asyncio.to_thread(self._usage_file.save, self.histories.positions(), [])
        if self.nodes is not None:
            if self._files is not None:
                await asyncio.to_thread(self._record_members)
            await self.nodes.start()
        await self.node.start()
        self.service.end_unowned(GRACE_S)
        self.background.start("history", self._trim)
        self.background.start("usage", self._save_usage)
        if not self._files:
            self.background.start("fence", self._look_for_others)
        self._ready = True
        if self._source is not None and not self._files:
            self.background.start("parts", self._change_parts)

    async def close(self) -> None:
        """Let what is under way become durable."""
        await self.service.close()
        if self._source is not None:
            await self._source.close()
        if self.nodes is not None:
            await self.nodes.close()
        await self.node.close()
        grace_us = int(self.settings.grace_s * _US)
        await asyncio.to_thread(self.histories.close, grace_us)
        await asyncio.sleep(0)  # what became durable in that is charged
        await self._save()
        await asyncio.to_thread(self._usage_file.close)

    def reload(self) -> None:
        """Read the limits again."""
        self.limits.reload()

    # Doors.

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
        return self.handler_of(site, handler.routes(), SCHEMAS, handler)

    def http_settings(self) -> HttpSettings:
        """A subscriber is a stream."""
        streams_max = self.settings.subscribers_max
        return replace(super().http_settings(), streams_max=streams_max, switch_offer=b"websocket")

    # What there is to see.

    def summary(self) -> str:
        """What can be read again."""
        return f"{counted(self.histories.sum_of(len), 'message')} in {self._where}"

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        return {"history": self._history, "accounts": self._accounts, "cluster": self._cluster}

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of all parts."""
        total, (node, _) = self.histories.sum_of, self.limiter.stats()
        yield counter(
            "sluicegate_pubsub_accepted", "Messages accepted.", total(attrgetter("accepted"))
        )
        yield counters(
            "sluicegate_pubsub_refused",
            "Messages refused, by the limit.",
            [
                MetricSample("_total", (("reason", name),), count)
                for name, count in self._refused().items()
            ],
        )
        yield counter(
            "sluicegate_pubsub_failed",
            "Messages that could not be made durable.",
            total(attrgetter("failed")),
        )
        yield gauge(
            "sluicegate_pubsub_channels", "Channels in use.", total(lambda one: len(one.channels))
        )
        yield gauge(
            "sluicegate_pubsub_history_bytes", "Bytes of the history.", total(attrgetter("bytes"))
        )
        yield counters(
            "sluicegate_pubsub_history_cut",
            "Messages that left the history, by the bound.",
            [
                MetricSample("_total", (("bound", "bytes"),), total(attrgetter("cut_by_bytes"))),
                MetricSample("_total", (("bound", "age"),), total(attrgetter("cut_by_age"))),
            ],
        )
        yield gauge("sluicegate_pubsub_sockets", "WebSocket connections.", self.sockets.counts.open)
        yield counter(
            "sluicegate_pubsub_sent", "Messages sent over WebSockets.", self.fan_out.delivered
        )
        yield counter(
            "sluicegate_pubsub_gaps",
            "Losses of continuity told over WebSockets.",
            self.fan_out.gaps,
        )
        yield counter(
            "sluicegate_pubsub_rested",
            "Times a WebSocket was read later, for it sent too fast.",
            self.sockets.counts.rested,
        )
        yield gauge(
            "sluicegate_pubsub_channels_written",
            "Channels with messages.",
            total(attrgetter("written")),
        )
        yield gauge("sluicegate_pubsub_present", "Members of channels.", len(self.presence))
        yield gauge("sluicegate_pubsub_accounts", "Accounts in use.", node.accounts)
        yield gauge(
            "sluicegate_pubsub_accounts_suppressed",
            "Accounts of whose messages a share is refused.",
            node.suppressed_accounts,
        )
        yield from self._node_metrics()

    # Inside.

    def _refused(self) -> Mapping[str, int]:
        """By reason; what is refused at a channel's home is counted there."""
        refused = Counter(self.service.refused)
        if self.nodes is not None:
            refused.update(self.nodes.refused)
        return refused

    def _node_metrics(self) -> Iterable[MetricFamily]:
        stats = self.node.stats()
        yield counters(
            "sluicegate_pubsub_reports",
            "Reports to account masters on other nodes.",
            [
                MetricSample("_total", (("outcome", "answered"),), stats.answered),
                MetricSample("_total", (("outcome", "failed"),), stats.failed),
            ],
        )
        yield counter(
            "sluicegate_pubsub_reports_forged",
            "Reports refused, for they were in the name of another node.",
            stats.forged,
        )
        yield counter(
            "sluicegate_pubsub_forwarded",
            "Messages passed on to the homes of their channels.",
            0 if self.nodes is None else self.nodes.forwarded,
        )
        yield gauge(
            "sluicegate_pubsub_nodes_failing",
            "Nodes that do not answer this one.",
            len(self.node.failing),
        )

    def _open_socket(self, request: HttpRequest, by: Identity) -> HttpReply:
        of_node = self.service.is_node(by)
        bounds = self._node_bounds if of_node else self._session_bounds

        def open_session(socket: Socket) -> PubSubSession:
            return PubSubSession(socket, by, self.service, self.fan_out, bounds, self.clock)

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

    def _record_members(self) -> None:
        moves = Moves(self.settings.node, self.settings.history)
        moves.read()
        history = self.histories.by_part[FILES]
        if moves.record(self.limiter.members, history.newest):
            _log.info("the members are now %s", ", ".join(sorted(self.limiter.members)))
        history.mark_moved(moves.moved)

    @property
    def _where(self) -> str:
        return self.settings.history if self._files is not None else "Kafka"

    def _open_histories(self) -> Histories:
        """One of files, or of each part of a log in Kafka that has its home here."""
        settings = self.settings
        if not settings.event_log:
            self._files = FileLog(_log_settings(settings))
            tag = tag_of(settings.node) if settings.node else None
            histories = Histories(1)
            histories.by_part[FILES] = self._open_history(self._files, tag, 1)
            return histories
        if not settings.event_log.startswith(KAFKA_SCHEMES):
            raise BadValue(
                "--event-log", redacted(settings.event_log), "give kafka://HOST:PORT/TOPIC"
            )
        return Histories(settings.event_log_parts)

    def _own_parts(self) -> Sequence[int]:
        """The parts of the log in Kafka that have their home here."""
        if self.nodes is None:
            return range(self.histories.parts)
        return self.nodes.parts_of(self.settings.node)

    async def _open_part(self, part: int, counted: int = ELSEWHERE) -> None:
        """Be the home of a part, and read it; what is not counted here was where it was before."""
        settings = self.settings
        mark = "&" if "?" in settings.event_log else "?"
        shared = open_shared_log(f"{settings.event_log}{mark}partition={part}")
        fenced = FencedLog(shared, settings.node or NODE)
        of = -(-self.histories.parts // len(self._members.members))
        history = self._open_history(fenced, tag_of_part(part), of)
        fenced.listen(history.find, history.lose)
        try:
            until = await asyncio.to_thread(fenced.claim, self.clock.now_us())
            await self._read(part, history, counted, until)
        except BaseException:
            await asyncio.to_thread(fenced.close)
            raise
        self._fenced[part] = fenced
        self.histories.by_part[part] = history

    async def _read(
        self, part: int, history: ChannelHistory, counted: int, until: int = -1
    ) -> None:
        history.counted = counted
        await history.read(
            self.clock.now_us(), 0 if part == FILES and self._files else _WAIT_US, until
        )
        history.counted = 0

    async def _close_part(self, part: int) -> None:
        """Be its home no more."""
        history, fenced = self.histories.by_part.pop(part), self._fenced.pop(part)
        history.leave(self.nodes.home_of_part(part) if self.nodes is not None else "")
        await asyncio.to_thread(fenced.close, int(self.settings.grace_s * _US))

    def _take_over(self, members: Mapping[str, Endpoint]) -> None:
        """These are the nodes now."""
        _log.info("the members are %s", ", ".join(sorted(members)))
        self.node.change_peers(members)
        if self.nodes is not None:
            self.nodes.change_members(members)

    async def _look_for_members(self) -> None:
        """Find out who comes and goes, and be the home of what is to be at home here."""
        assert self._source is not None
        while True:
            await asyncio.sleep(self.settings.look_s)
            try:
                found = await self._source.look()
            except Unavailable as error:
                if not self._unseen:
                    _log.error("nobody knows who comes and goes: %s", error)
                self._unseen = True
                continue
            self._unseen = False
            if not self._ready:  # a lease is not to run out while the history is read
                continue
            before = self._members.members
            members = self._members.update(found, self.clock.now_us())
            if members != before:
                self._take_over(members)
                if self._files:
                    await asyncio.to_thread(self._record_members)
            self.service.move_readings()

    async def _change_parts(self) -> None:
        """Give away parts that have their home elsewhere, and take those that have it here.

        That takes longer than a lease may wait.
        """
        while True:
            await asyncio.sleep(self.settings.look_s)
            await self._change_parts_now()

    async def _change_parts_now(self) -> None:
        ours = self._own_parts()
        lost = [part for part, one in self.histories.by_part.items() if one.lost_to]
        gone = {*lost, *(self.histories.by_part.keys() - set(ours))}
        await asyncio.gather(*(self._close_part(part) for part in gone))
        new = [part for part in ours if part not in self.histories.by_part]
        if not new:
            return
        tried = await asyncio.gather(
            *(self._open_part(part) for part in new), return_exceptions=True
        )
        self.service.move_readings()
        self.service.end_unowned(GRACE_S)
        for error in tried:
            if isinstance(error, BaseException):
                raise error

    def _open_history(self, log: EventLog, tag: int | None, of: int) -> ChannelHistory:
        settings = self.settings
        return ChannelHistory(
            log,
            bytes_max=settings.history_bytes // of,
            age_us_max=int(settings.history_s * _US),
            channels_max=settings.channels_max // of or 1,
            bucket=self._bucket,
            tag=tag,
            usage=_HistoryUsage(self.usage.meter, self.clock),
            presence=self.presence,
        )

    def _bucket(self) -> TokenBucket | None:
        rate = self.settings.channel_rate
        return TokenBucket(rate, _US) if rate else None

    async def _save_usage(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._save()

    async def _save(self) -> None:
        """Keep what accounts have used; what cannot be kept now is, with the next."""
        changed = self.usage.meter.unsaved()
        if not changed:
            return
        try:
            await asyncio.to_thread(self._usage_file.save, self.histories.positions(), changed)
        except sqlite3.Error as error:
            self.usage.meter.keep_unsaved(changed)
            if not self._unsaved:
                _log.error("what accounts have used is not kept: %s", error)
            self._unsaved = True
        else:
            self._unsaved = False

    async def _look_for_others(self) -> None:
        """Find out in time that another node is the home of channels that nobody publishes in."""
        while True:
            await asyncio.sleep(LOOK_S)
            for fenced in list(self._fenced.values()):
                try:
                    await asyncio.to_thread(fenced.look)
                except Unavailable as error:
                    _log.debug("the end of the log is not known: %s", error)

    async def _trim(self) -> None:
        while True:
            await asyncio.sleep(TRIM_S)
            self.histories.trim(self.clock.now_us())


@final
class _HistoryUsage:
    """What the history uses up, for the meter."""

    def __init__(self, meter: UsageMeter, clock: Clock) -> None:
        self._meter = meter
        self._clock = clock

    def charge(self, account: str, cost: int, at_us: int) -> None:
        self._meter.spend(account, cost, at_us, self._clock.now_us())

    def count_channels(self, account: str, change: int) -> None:
        self._meter.count_channels(account, change, self._clock.now_us())


def usage_settings(settings: PubSubSettings) -> UsageSettings:
    """How what is used up is reported, and where an account is restricted."""
    return UsageSettings(
        restrict_percent=settings.restrict_percent, interval_us=int(settings.usage_s * _US)
    )


def _socket_settings(settings: PubSubSettings) -> WebSocketSettings:
    return WebSocketSettings(
        message_bytes_max=settings.message_bytes_max,
        frames_per_s=settings.received_rate,
        bytes_per_s=settings.received_bytes,
        unread_bytes_max=settings.unread_bytes_max,
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
        under_way_max=settings.forwards_max,
        unread_bytes_max=1 << 20,
    )


def _log_settings(settings: PubSubSettings) -> FileLogSettings:
    """What the files keep is at least what can be read again."""
    segment = max(settings.history_bytes // SEGMENTS, SEGMENT_BYTES_MIN)
    return FileLogSettings(
        folder=settings.history,
        segment_bytes_max=segment,
        retain_bytes=settings.history_bytes + 2 * segment,
        retain_us=int(settings.history_s * _US),
    )
