"""Node: an account limiter on real time and real sockets, one among peers that report to it.

    node = ClusterNode(limiter, peers, settings, clock, chance)   within the loop
    await node.start()
    admission = limiter.admit(request, clock.now_us())
    await node.close()

It answers reports (`report`, behind the RESP door's `SG.REPORT`), and every `interval_us` reports
to the masters of its accounts, one report under way a master: what a slow master does not answer
waits here and is not sent twice. A report that fails says nothing; the policy repeats it, and holds
what it last heard meanwhile. A peer that does not answer (`peer_health.py`) is master of nothing
until it answers a probe; who comes after it goes on with the fractions that the nodes have heard.

A peer reports in its own name: whoever calls must be granted `report`, be a member, and be
called as the node it reports for, so that nobody forges another's usage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, final

from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.account_usage import AccountUsage
from sluicegate.cluster.peer_health import PeerHealth
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Forbidden, Unavailable
from sluicegate.contracts.suppression import FactorMessage, SuppressReport
from sluicegate.contracts.usage import UsageAnswer, UsageReport
from sluicegate.stores.redis.connection import RedisCall, Reply
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.wire.node_messages import encode_report, encode_usage, parse_answer, parse_totals
from sluicegate.wire.resp import ErrorReply

_log: Final = logging.getLogger("sluicegate.cluster")
SECOND_US: Final = 1_000_000
GONE_US: Final = 1_000_000
_KNOCK_S: Final = 1.0
_USAGE_S: Final = 1.0  # that a client waits for the sum of all nodes


class PeerLink(Protocol):
    """How a node speaks to one peer."""

    endpoint: Endpoint

    def send(self, call: RedisCall) -> None:
        """Have the call answered, or fail it; never raises, never waits."""

    async def close(self) -> None:
        """End it; what is under way fails."""


async def knock(endpoint: Endpoint) -> None:
    """Connect and leave again; ConnectionRefusedError where nothing listens."""
    _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.close()


class ClusterStats(NamedTuple):
    """Reports that were sent, and of those answered and failed; reports refused as forged."""

    sent: int
    answered: int
    failed: int
    forged: int


@final
class ClusterNode:
    """Make it within the loop that uses it; `close` ends what it has started."""

    def __init__(
        self,
        limiter: AccountLimiter,
        peers: Mapping[str, Endpoint],
        settings: RedisSettings,
        clock: Clock,
        chance: Chance,
        *,
        gone_us: int = GONE_US,
        usage: AccountUsage | None = None,
        link_to: Callable[[Endpoint, RedisSettings, Chance], PeerLink] = RedisNode,
        knock_at: Callable[[Endpoint], Awaitable[None]] = knock,
    ) -> None:
        """`settings` say how to speak to peers: token, TLS, time-outs; endpoints come from
        `peers`. With `usage`, what accounts use up is reported too. `link_to` and `knock_at` are
        the network."""
        self.limiter = limiter
        self._usage = usage
        self._usage_s = 0.0  # when it was last reported
        self._usage_under_way: dict[str, asyncio.Task[None]] = {}
        self._health = PeerHealth(gone_us / SECOND_US)
        self._knocks: dict[str, asyncio.Task[None]] = {}
        self._settings = replace(settings, kind="a node of the cluster")
        self._clock = clock
        self._chance = chance
        self._tick_s = limiter.early_us / SECOND_US
        self._links: dict[str, PeerLink] = {}
        self._link_to = link_to
        self._knock_at = knock_at
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._sent = self._answered = self._failed = self._forged = 0
        self.change_peers(peers)

    async def start(self) -> None:
        """Begin to report."""
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def close(self) -> None:
        """Stop reporting; return when all sockets are closed."""
        tasks = [
            *self._under_way.values(), *self._usage_under_way.values(), *self._knocks.values()
        ]  # fmt: skip
        if self._ticking is not None:
            tasks.append(self._ticking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in self._links.values()), *self._closing)

    def change_peers(self, peers: Mapping[str, Endpoint]) -> None:
        """Take over who is alive, this node left out or not."""
        others = {name: at for name, at in peers.items() if name != self.limiter.name}
        self.limiter.change_members({self.limiter.name, *others}, self._clock.now_us())
        moved = [name for name, link in self._links.items() if others.get(name) != link.endpoint]
        for name in moved:
            closing = asyncio.get_running_loop().create_task(self._links.pop(name).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        for name, endpoint in others.items():
            if name not in self._links:
                settings = replace(self._settings, endpoints=(endpoint,))
                self._links[name] = self._link_to(endpoint, settings, self._chance)
        self._health.change(self._links.keys(), moved)

    def report(self, report: SuppressReport, by: Identity) -> FactorMessage | None:
        """Answer a peer; None for a report from before its last start."""
        self._check(report.node, by)
        return self.limiter.receive_report(report, self._clock.now_us())

    def report_usage(self, report: UsageReport, by: Identity) -> UsageAnswer:
        """Answer what a peer says was used there."""
        self._check(report.node, by)
        if self._usage is None:
            return UsageAnswer(self.limiter.name, ())
        return self._usage.receive_report(report, self._clock.now_us())

    async def hear_usage(self, account: str) -> None:
        """Hear from its master what an account has used everywhere; nothing if it is silent."""
        usage = self._usage
        if usage is None:
            return
        master = self.limiter.master_of(account)
        report = usage.question(account, self._clock.now_us(), master)
        link = self._links.get(master)
        if report is not None and link is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_USAGE_S):
                    await self._ask_usage(usage, master, link, report)

    def name_for(self, by: Identity) -> str:
        """Tell a peer that found this node by its address what it is called."""
        by.require(Grant.REPORT)
        return self.limiter.name

    def stats(self) -> ClusterStats:
        """What was sent and heard so far."""
        return ClusterStats(self._sent, self._answered, self._failed, self._forged)

    @property
    def failing(self) -> Mapping[str, str]:
        """Peers that do not answer, and why."""
        return self._health.failing

    def suspect(self, name: str) -> None:
        """Find out whether a peer answers: it owes something else an answer for long."""
        self._health.suspect((name,))

    def _check(self, node: str, by: Identity) -> None:
        """Refuse what is said in the name of another node, or by none."""
        by.require(Grant.REPORT)
        if node != by.name or by.name not in self.limiter.members:
            self._forged += 1
            raise Forbidden(by.name, f"{Grant.REPORT.value} for {node[:40]!r}")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            self._change_live()
            try:
                reports = self.limiter.reports(self._clock.now_us(), self._under_way)
            except BadValue as error:  # a limit that cannot be used, of an account of ours
                _log.error("nothing was reported: %s", error)
                continue
            for member, report in reports:
                self._send(member, report)
            self._report_usage()
            self._probe()

    def _send(self, member: str, report: SuppressReport) -> None:
        link = self._links.get(member)
        if link is not None:
            self._sent += 1
            task = asyncio.get_running_loop().create_task(self._exchange(member, link, report))
            self._under_way[member] = task

    def _report_usage(self) -> None:
        usage, loop = self._usage, asyncio.get_running_loop()
        if usage is None or loop.time() - self._usage_s < usage.interval_us / SECOND_US:
            return
        self._usage_s = loop.time()
        limiter, now_us = self.limiter, self._clock.now_us()
        reports = usage.reports(now_us, limiter.master_of, limiter.live, self._usage_under_way)
        for member, report in reports:
            link = self._links.get(member)
            if link is None:
                usage.meter.fail(report)
                continue
            task = loop.create_task(self._exchange_usage(usage, member, link, report))
            self._usage_under_way[member] = task

    async def _exchange_usage(
        self, usage: AccountUsage, member: str, link: PeerLink, report: UsageReport
    ) -> None:
        try:
            await self._ask_usage(usage, member, link, report)
        finally:
            with suppress(KeyError):
                del self._usage_under_way[member]

    async def _ask_usage(
        self, usage: AccountUsage, member: str, link: PeerLink, report: UsageReport
    ) -> None:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        try:
            link.send(RedisCall(future, encode_usage(report)))
            answer = parse_totals(await future)
            if answer.master == member:
                usage.meter.receive(answer)
        except (Unavailable, ErrorReply, BadValue) as error:
            usage.meter.fail(report)
            _log.debug("%s does not answer what was used: %s", member, error)

    def _change_live(self) -> None:
        """Choose masters among those that have not failed for too long."""
        choice = self._health.choose(asyncio.get_running_loop().time())
        if choice is not None:
            self.limiter.change_live(choice.live, self._clock.now_us(), choice.dead)
            if self._usage is not None:
                for member in choice.dead:
                    self._usage.forget_node(member)

    def _probe(self) -> None:
        """Ask those that fail whether they answer again, and those that may whether they do."""
        loop, health = asyncio.get_running_loop(), self._health
        if not health.is_probe_due(loop.time()):
            return
        # Who owes a report may be on the other side of a partition, and so may this node be.
        health.suspect(self.limiter.silent_members(self._clock.now_us()))
        for member in health.next_asked():
            if member not in self._under_way:
                self._send(member, self.limiter.probe())
        for member in sorted(health.failing.keys() - self._knocks.keys()):
            self._knocks[member] = loop.create_task(self._knock(member))

    async def _knock(self, member: str) -> None:
        """Find out whether anything listens where a peer was."""
        dead = False
        try:
            async with asyncio.timeout(_KNOCK_S):
                await self._knock_at(self._links[member].endpoint)
        except ConnectionRefusedError:
            dead = True
        except (OSError, TimeoutError, KeyError):  # nobody can tell, or it is no peer any more
            pass
        finally:
            self._health.find_dead(member, dead=dead)
            del self._knocks[member]

    async def _exchange(self, member: str, link: PeerLink, report: SuppressReport) -> None:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        try:
            link.send(RedisCall(future, encode_report(report)))
            answer = parse_answer(await future)
            if answer is None:
                self.limiter.raise_boot()
            elif answer.master == member:
                self.limiter.receive_factors(member, answer, self._clock.now_us())
            self._answered += 1
            if self._health.answer(member):
                _log.info("%s answers reports", member)
        except (Unavailable, ErrorReply, BadValue) as error:
            self._failed += 1
            if self._health.fail(member, str(error), asyncio.get_running_loop().time()):
                _log.warning("%s does not answer reports: %s", member, error)
        finally:
            with suppress(KeyError):
                del self._under_way[member]
