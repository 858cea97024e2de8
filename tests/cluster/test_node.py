"""Nodes that report to each other over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import final

import pytest

from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.node import ClusterNode
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import AccountCount, FactorMessage, SuppressReport
from sluicegate.doors.resp.cluster.commands import CLUSTER
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.policies.suppression.suppress_master import AccountLimit
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.system import SystemClock
from sluicegate.testing import SeededChance
from sluicegate.wire.node_messages import encode_report
from sluicegate.wire.resp import command
from tests.cluster.faults import ALONE, BEGIN_S, END_S, FAIR, OLD, play
from tests.doors.listening import run
from tests.doors.resp.service import Tokens
from tests.doors.resp.talk import listening

NAMES = ("a", "b", "c")
L = 100
# Each name is its node's token too.
ACCESS = Tokens(
    {name: Identity(name, [Grant.REPORT]) for name in NAMES} | {"user": Identity("user", [])},
    everybody=False,
)
CLOCK = SystemClock()


def limit_of(_: str) -> AccountLimit | None:
    return AccountLimit(L)


@final
class Master:
    """A node, as others ask it; it answers nobody while it is `failing`."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.failing = False

    def report(self, report: SuppressReport, by: Identity) -> FactorMessage | None:
        if self.failing:
            raise Unavailable("the master", "it is told to fail")
        return self.node.report(report, by)


def node_of(name: str) -> ClusterNode:
    limiter = AccountLimiter(name, 1, limit_of, SeededChance(1), CLOCK.now_us())
    settings = RedisSettings(password=name, timeout_us=2_000_000)
    return ClusterNode(limiter, {}, settings, CLOCK, SeededChance(2), gone_us=300_000)


@asynccontextmanager
async def cluster(
    masters: dict[str, Master] | None = None,
) -> AsyncIterator[tuple[dict[str, ClusterNode], dict[str, Endpoint]]]:
    async with AsyncExitStack() as stack:
        nodes = {name: node_of(name) for name in NAMES}
        masters = {} if masters is None else masters
        peers = {}
        for name, node in nodes.items():
            masters[name] = Master(node)
            door = RespDoor(masters[name], ACCESS, RespSettings(), CLUSTER)
            peers[name] = Endpoint("127.0.0.1", await stack.enter_async_context(listening(door)))
        for node in nodes.values():
            node.change_peers(peers)
            await node.start()
            stack.push_async_callback(node.close)
        yield nodes, peers


async def attempt_until(
    nodes: dict[str, ClusterNode], account: str, each: int, done: Callable[[], bool]
) -> None:
    """So many attempts at each node every 10 ms, until it is so."""
    while not done():
        for node in nodes.values():
            for _ in range(each):
                node.limiter.admit(Request("k", caller=account), CLOCK.now_us())
        await asyncio.sleep(0.01)


def test_over_sockets_every_node_hears_what_to_reject_from_the_accounts_master() -> None:
    async def story() -> None:
        async with cluster() as (nodes, _):
            accounts = [f"account {number}" for number in range(4)]
            masters = {nodes["a"].limiter.master_of(account) for account in accounts}
            assert len(masters) > 1
            for account in accounts:

                def rejected(account: str = account) -> bool:
                    now_us = CLOCK.now_us()
                    return all(
                        node.limiter.factor(account, now_us) > 0.5 for node in nodes.values()
                    )

                await attempt_until(nodes, account, 4, rejected)
            assert all(node.stats().failed == 0 for node in nodes.values())

    run(story)


def test_a_peer_that_is_not_there_keeps_nobody_from_reporting_to_the_others() -> None:
    async def story() -> None:
        async with cluster() as (nodes, peers):
            there = {name: nodes[name].limiter for name in ("a", "b")}
            lost = {**peers, "c": Endpoint("127.0.0.1", 1)}
            for name in there:
                nodes[name].change_peers(lost)
            of = {
                master: next(
                    name for name in map(str, range(1_000)) if there["a"].master_of(name) == master
                )
                for master in ("b", "c")
            }

            def heard() -> bool:
                there["a"].admit(Request("k", caller=of["c"]), CLOCK.now_us())
                return there["a"].factor(of["b"], CLOCK.now_us()) > 0.5

            await attempt_until({"a": nodes["a"]}, of["b"], 10, heard)
            await attempt_until(
                {"a": nodes["a"]}, of["c"], 1, lambda: nodes["a"].stats().failed > 0
            )

    run(story)


def test_a_master_that_is_gone_is_replaced_and_is_master_again_when_it_answers() -> None:
    async def story() -> None:
        masters: dict[str, Master] = {}
        async with cluster(masters) as (nodes, _):
            here = nodes["a"]
            account = next(
                name for name in map(str, range(1_000)) if here.limiter.master_of(name) == "c"
            )
            two = {name: nodes[name] for name in ("a", "b")}

            def factors() -> list[float]:
                now_us = CLOCK.now_us()
                return [node.limiter.factor(account, now_us) for node in two.values()]

            def mastered_by_c() -> list[bool]:
                return [node.limiter.master_of(account) == "c" for node in two.values()]

            await attempt_until(two, account, 5, lambda: min(factors()) > 0.5)
            masters["c"].failing = True
            lowest = 1.0

            def replaced() -> bool:
                nonlocal lowest
                lowest = min(lowest, *factors())
                return not any(mastered_by_c())

            await attempt_until(two, account, 5, replaced)
            assert lowest > 0.5, "nobody was unlimited meanwhile"
            assert all("c" in node.failing for node in two.values())
            masters["c"].failing = False
            await attempt_until(two, account, 5, lambda: all(mastered_by_c()))
            assert not here.failing
            await attempt_until(two, account, 5, lambda: min(factors()) > 0.5)

    run(story)


def test_nobody_reports_in_anothers_name_or_without_the_grant() -> None:
    async def story() -> None:
        async with cluster() as (nodes, peers):
            report = encode_report(SuppressReport("b", 1, (AccountCount("x", 9, 9, 0.0),)))
            for token, says in (("c", b"-NOPERM"), ("user", b"-NOPERM"), ("b", b"*")):
                reader, writer = await asyncio.open_connection(*peers["a"][:2])
                writer.write(command("AUTH", token) + report)
                assert await reader.readline() == b"+OK\r\n"
                assert (await reader.readline()).startswith(says)
                writer.transport.abort()
            reader, writer = await asyncio.open_connection(*peers["a"][:2])
            writer.write(report)
            assert (await reader.readline()).startswith(b"-NOAUTH")
            writer.transport.abort()
            assert nodes["a"].stats().forged == 1

    run(story)


def test_a_node_that_is_given_up_is_no_place_to_report_to() -> None:
    async def story() -> None:
        async with cluster() as (nodes, peers):
            here = nodes["a"]
            with pytest.raises(Exception, match="name this node"):
                here.limiter.change_members(["b"])
            here.change_peers({"a": peers["a"]})
            assert here.limiter.master_of("any") == "a"
            sent = here.stats().sent
            await attempt_until(
                {"a": here}, "any", 10, lambda: here.limiter.factor("any", CLOCK.now_us()) > 0.5
            )
            assert here.stats().sent == sent

    run(story)


def test_a_master_that_is_cut_off_notices_and_leaves_the_others_their_part() -> None:
    """It reports to nobody itself; nobody reports to it any more. Its own load conforms.

    What it said for itself alone is past when it hears the others: who conforms is let go.
    """
    cluster = play(0, {ALONE})
    assert 0.8 <= cluster.rate(BEGIN_S + 4, END_S) <= 1.1
    assert cluster.refusals(FAIR, END_S, END_S + 4) <= 20


def test_a_node_that_comes_back_with_an_older_clock_is_heard() -> None:
    cluster = play(4, {OLD})
    assert cluster.refusals(FAIR) == 0
    assert cluster.rate(BEGIN_S, END_S) <= 1.0
