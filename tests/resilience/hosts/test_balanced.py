"""Ten real servers of which one is bad, and one client that is to notice it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, final

import httpx
import pytest

from sluicegate.kernels.outlier import HostVerdict
from sluicegate.policies.client.balance import BalanceSettings
from sluicegate.policies.client.outlier import OutlierSettings
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import AsyncResilientTransport
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source
from tests.prove.seeds import first

CALLS: Final = 400
PATIENCE_US: Final = 60_000_000  # with a busy machine
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FAILING: Final = b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"


@final
class Host:
    """A server of one answer; without one it hangs."""

    def __init__(self, answer: bytes | None = OK) -> None:
        self.answer = answer
        self.received = 0
        self.name = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    assert b"host: search" in head.lower(), "the service keeps its name"
                    self.received += 1
                    if self.answer is not None:
                        writer.write(self.answer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(hosts: list[Host]) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for host in hosts:
            server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
            host.name = "{}:{}".format(*server.sockets[0].getsockname())
            stack.callback(server.close)
        yield
        # The callers have closed their connections; let each server notice.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 60)


async def run(client: ResilientClient, method: str, calls: int = CALLS) -> int:
    """Ten callers side by side; return how many calls were answered with 200."""
    good = 0
    below = httpx.AsyncHTTPTransport(verify=False, limits=httpx.Limits(max_connections=1_000))
    transport = AsyncResilientTransport(client, below)
    async with httpx.AsyncClient(transport=transport, timeout=60) as driver:

        async def call_often() -> None:
            nonlocal good
            for _ in range(calls // 10):
                response = await driver.request(method, "http://search/")
                good += response.status_code == httpx.codes.OK

        await asyncio.gather(*[call_often() for _ in range(10)])
    return good


def share_of_good(
    hosts: list[Host], method: str = "GET", attempt_us: int = PATIENCE_US, calls: int = CALLS
) -> float:
    async def story() -> float:
        async with serving(hosts):
            group = HostGroup(list_source([host.name for host in hosts]))
            times = {"timeout_us": PATIENCE_US, "attempt_us": attempt_us}
            table = times | {"retry": {"base_us": 1_000}}
            client = ResilientClient(client_settings(table), group)
            good = await run(client, method, calls)
            assert group.balance.stats().inflight == 0
            assert client.breaker.stats().inflight == 0
            return good / calls

    return asyncio.run(story())


def nine_and(bad: Host) -> list[Host]:
    return [Host() for _ in range(9)] + [bad]


def test_one_host_of_ten_that_hangs_costs_nobody_an_answer() -> None:
    bad = Host(None)
    assert share_of_good(nine_and(bad), attempt_us=1_500_000) >= 0.999
    assert bad.received < CALLS // 20, "and is soon asked little"


@pytest.mark.parametrize("method", first(1, ["POST", "GET"]))
def test_one_host_of_ten_that_fails_at_once_does_not_draw_the_traffic(method: str) -> None:
    bad = Host(FAILING)
    # Before its first answer the host has one call of the ten or two, once in a hundred runs more.
    assert share_of_good(nine_and(bad), method, calls=3 * CALLS) >= 0.995
    assert bad.received < CALLS // 20


def test_ten_good_hosts_share_the_traffic() -> None:
    hosts = [Host() for _ in range(10)]
    assert share_of_good(hosts) == 1.0
    assert max(host.received for host in hosts) < CALLS // 2, "no host is everybody's favourite"


def test_drawn_without_regard_the_same_host_costs_a_tenth() -> None:
    hosts = nine_and(Host(FAILING))

    async def story() -> int:
        good = 0
        async with (
            serving(hosts),
            httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(verify=False)) as driver,
        ):
            for turn in range(100):
                url = f"http://{hosts[turn % 10].name}/"
                response = await driver.post(url, headers={"Host": "search"})
                good += response.status_code == httpx.codes.OK
        return good

    assert asyncio.run(story()) == 90


def test_an_ejection_is_reported_and_is_of_the_bad_host_alone() -> None:
    hosts = nine_and(Host(FAILING))
    verdicts: list[HostVerdict] = []

    async def story() -> None:
        async with serving(hosts):
            # Five failures are enough, and are soon looked at; a busy machine makes no host slow.
            outlier = OutlierSettings(sweep_us=1_000, latency_ratio=0.0)
            balance = BalanceSettings(penalty_us=0)
            source = list_source([host.name for host in hosts])
            group = HostGroup(source, balance, outlier)
            group.subscribe(lambda verdict, _: verdicts.append(verdict))
            times = {"timeout_us": PATIENCE_US, "attempt_us": PATIENCE_US}
            table = times | {"retry": {"base_us": 1}, "breaker": {"failures_in_row": 0}}
            await run(ResilientClient(client_settings(table), group), "GET")

    asyncio.run(story())
    assert [(verdict.name, verdict.ejected) for verdict in verdicts] == [(hosts[9].name, True)]
