"""What a report between nodes of a pub/sub cluster costs, by RESP and by gRPC.

Claim: nodes speak RESP to each other (decision 0034) since a call costs less than by gRPC, also
with a connection that stays. The report is the same bytes for both, and is answered by the same
account master, behind our own two doors; the callers are the nodes' own client and that of grpcio,
kept alive. Both sides are in one process, and what is compared is its CPU time, all threads: one
call after the other, and so many under way at once as a node has peers.

    python -m benchmarks.node_reports
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import cast, final

import grpc.aio
import hiredis

from benchmarks.rounds import Bars, build_of
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.node import ClusterNode
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.suppression import AccountCount, FactorMessage, SuppressReport
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.listener import new_loop
from sluicegate.doors.resp.cluster.commands import CLUSTER
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.kernels import suppression
from sluicegate.policies.access import OpenAccess
from sluicegate.policies.suppression.suppress_master import AccountLimit
from sluicegate.stores.redis.connection import RedisCall, Reply
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.system import SystemChance, SystemClock
from sluicegate.wire.node_messages import (
    encode_answer,
    encode_report,
    parse_answer,
    parse_report,
)

METHOD = "/bench.AccountMaster/Report"
ROUNDS = 5
ACCOUNTS = (1, 10, 100)  # in a report
AT_ONCE = (1, 16)
TIMES_MIN = 1.0
FEW = 10  # accounts in a report: of more the words take longer than the call
PEER = Identity("peer", [Grant.REPORT])
ALIVE = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_permit_without_calls", 1)]
Call = Callable[[bytes], Awaitable[object]]


@final
class Master:
    """A node, for whoever calls: neither door looks a token up."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def report(self, report: SuppressReport, by: Identity) -> FactorMessage | None:
        """Answer a report."""
        return self._node.report(report, PEER)


def words(data: bytes) -> object:
    """What a reader of RESP makes of it."""
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


def report_of(accounts: int, number: int) -> bytes:
    """One of this many accounts, each time with more."""
    counts = [AccountCount(f"account {at}", 3, 3 * number, 0.0) for at in range(accounts)]
    return encode_report(SuppressReport("peer", 1, tuple(counts)))


async def cpu_us(call: Call, accounts: int, at_once: int, seconds: float) -> float:
    """CPU time of a call: asked, answered, and read."""
    calls, number = 0, 1
    began, cpu_began = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        number += at_once
        await asyncio.gather(*(call(report_of(accounts, number + at)) for at in range(at_once)))
        calls += at_once
    return (time.process_time() - cpu_began) * 1e6 / calls


async def measure(seconds: float) -> bool:
    """Both of them, by turns."""
    loop, clock = asyncio.get_running_loop(), SystemClock()
    limiter = AccountLimiter(
        "master", 1, lambda _: AccountLimit(1_000_000), SystemChance(), clock.now_us()
    )
    node = ClusterNode(limiter, {}, RedisSettings(), clock, SystemChance())
    limiter.change_members(["master", "peer"])
    access, master = OpenAccess(), Master(node)

    def answer(message: bytes, by: Identity) -> bytes:
        report = parse_report(cast("list[bytes]", words(message)))
        return encode_answer(master.report(report, by))

    resp = RespDoor(master, access, RespSettings(), CLUSTER)
    methods = Methods({METHOD: answer}, {})
    doors = {
        "resp": resp.protocol,
        "grpc": cast("Callable[[], asyncio.Protocol]", GrpcDoor(methods, access, clock)),
    }
    servers = {name: await loop.create_server(door, "127.0.0.1", 0) for name, door in doors.items()}
    ports = {name: one.sockets[0].getsockname()[1] for name, one in servers.items()}
    endpoint = Endpoint("127.0.0.1", ports["resp"])
    link = RedisNode(
        endpoint, RedisSettings(endpoints=(endpoint,), timeout_us=1_000_000), SystemChance()
    )
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{ports['grpc']}", options=ALIVE)
    unary: Callable[..., Awaitable[bytes]] = channel.unary_unary(METHOD)

    async def by_resp(message: bytes) -> object:
        future: asyncio.Future[Reply] = loop.create_future()
        link.send(RedisCall(future, message))
        return parse_answer(await future)

    async def by_grpc(message: bytes) -> object:
        return parse_answer(words(await unary(message, timeout=1.0)))

    calls: dict[str, Call] = {"resp": by_resp, "grpc": by_grpc}
    bars = Bars()
    print(f"a report and its answer, both sides, {build_of(suppression.__file__)} build")
    for accounts in ACCOUNTS:
        for at_once in AT_ONCE:
            taken: dict[str, list[float]] = {name: [] for name in calls}
            for call in calls.values():
                await cpu_us(call, accounts, at_once, seconds / 5)  # warm
            for _ in range(ROUNDS):
                for name, call in calls.items():
                    taken[name].append(await cpu_us(call, accounts, at_once, seconds))
            middle = {name: statistics.median(found) for name, found in taken.items()}
            print(f"  {accounts} accounts, {at_once} under way: " + ", ".join(
                f"{name} {us:,.0f} us" for name, us in middle.items()
            ))  # fmt: skip
            times = middle["grpc"] / middle["resp"]
            if accounts <= FEW:
                bars.check(times >= TIMES_MIN, f"gRPC takes {times:.2f} x, of at least {TIMES_MIN}")
            else:
                print(f"          {times:.2f} x: it is the words that take the time")
    await channel.close()
    await link.close()
    await node.close()
    for server in servers.values():
        server.close()
    return not bars.missed


def main() -> None:
    """Measure, print, and check the bars."""
    parser = argparse.ArgumentParser(description="A report between nodes, by RESP and by gRPC.")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    seconds = parser.parse_args().seconds
    with asyncio.Runner(loop_factory=new_loop) as runner:
        met = runner.run(measure(seconds))
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
