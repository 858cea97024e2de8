"""gRPC over a group of hosts, sync and asyncio, to real servers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc
import pytest

from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.kernels.outlier import HostVerdict
from sluicegate.policies.client.balance import BalanceSettings
from sluicegate.resilience.client import grpc_hosts
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.grpc_hosts import async_host_channel, host_channel
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source
from sluicegate.testing import HandClock
from tests.resilience.client.test_grpc import FAILING, GET, Script, serving

# Calls the methods one after the other; the answers.
Ask: TypeAlias = Callable[..., list[Any]]


def ask_sync(client: ResilientClient, methods: list[str]) -> list[Any]:
    with host_channel(client, "b", grpc.insecure_channel, idempotent=[GET]) as channel:
        get = channel.unary_unary(GET, str.encode, bytes.decode)
        stream = channel.unary_stream("/T/Stream", str.encode, bytes.decode)
        return [get("") if method == GET else list(stream("")) for method in methods]


def ask_async(client: ResilientClient, methods: list[str]) -> list[Any]:
    async def ask() -> list[Any]:
        found: list[Any] = []
        connect = grpc.aio.insecure_channel
        async with async_host_channel(client, "b", connect, idempotent=[GET]) as channel:
            get = channel.unary_unary(GET, str.encode, bytes.decode)
            stream = channel.unary_stream("/T/Stream", str.encode, bytes.decode)
            for method in methods:
                if method == GET:
                    found.append(await get(""))
                else:
                    found.append([one async for one in stream("")])
        return found

    return asyncio.run(ask())


both = pytest.mark.parametrize("ask", [ask_sync, ask_async])


def client_of(
    *ports: int, clock: HandClock | None = None, balance: BalanceSettings | None = None
) -> ResilientClient:
    settings = client_settings({"retry": {"base_us": 1}})
    source = list_source([f"127.0.0.1:{one}" for one in ports])
    return ResilientClient(settings, HostGroup(source, balance, clock=clock), clock=clock)


def holds_nothing(client: ResilientClient) -> bool:
    assert client.hosts is not None
    return client.hosts.balance.stats().inflight == client.breaker.stats().inflight == 0


@both
def test_calls_go_to_the_hosts_with_their_codecs_and_no_field_of_ours(ask: Ask) -> None:
    with serving(Script()) as (one, first), serving(Script()) as (two, second):
        client = client_of(one, two)
        assert ask(client, [GET] * 20) == ["ok"] * 20
    assert first.received + second.received == 20
    claims = first.claims + second.claims
    assert len(claims) == 20
    assert not any("x-sluicegate-host" in one for one in claims)
    assert holds_nothing(client)


@both
def test_a_call_to_a_dead_host_goes_on_to_another(ask: Ask) -> None:
    with serving(Script()) as (port, server), socket.create_server(("127.0.0.1", 0)) as gone:
        dead = gone.getsockname()[1]
        gone.close()
        client = client_of(dead, port)
        assert ask(client, [GET] * 40) == ["ok"] * 40
    assert server.received == 40
    assert client.retry.stats().mended > 0
    assert holds_nothing(client)


@both
def test_a_host_that_fails_is_ejected_within_a_second_and_asked_no_more(ask: Ask) -> None:
    """The choice alone would leave it after one failure: here it looks like any other."""
    verdicts: list[tuple[HostVerdict, int]] = []
    clock = HandClock()
    began_us = clock.now_us()
    with serving(FAILING) as (bad, failing), serving(Script()) as (good, _):
        client = client_of(bad, good, clock=clock, balance=BalanceSettings(penalty_us=0))
        assert client.hosts is not None
        client.hosts.subscribe(lambda verdict, at_us: verdicts.append((verdict, at_us)))
        while not verdicts and clock.now_us() < began_us + 3_000_000:
            with contextlib.suppress(grpc.RpcError):  # of calls that no budget was left for
                ask(client, [GET] * 5)
            clock.advance(ms=50)
        seen = failing.received
        ask(client, [GET] * 20)
        assert failing.received == seen
    verdict, at_us = verdicts[0]
    assert (verdict.name, verdict.ejected) == (f"127.0.0.1:{bad}", True)
    assert at_us <= began_us + 1_000_000


@both
def test_a_stream_goes_to_a_host_of_the_group_and_holds_nothing(ask: Ask) -> None:
    with serving(Script()) as (port, _):
        client = client_of(port)
        assert ask(client, ["/T/Stream"]) == [["ok"]]
    assert holds_nothing(client)


def test_channels_to_hosts_that_are_gone_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_hosts, "SPARE_MAX", 1)
    hosts = ["127.0.0.1:1"]
    opened: list[str] = []
    closed: list[str] = []

    class Channel:
        def __init__(self, host: str) -> None:
            self.host = host
            opened.append(host)

        def close(self) -> None:
            closed.append(self.host)

        def unary_unary(self, *method: Any) -> Callable[..., Any]:
            return lambda *_, **__: None

    client = ResilientClient(None, HostGroup(lambda: hosts))
    assert client.hosts is not None
    channel = host_channel(client, "b", Channel)
    for port in range(1, 6):
        hosts[:] = [f"127.0.0.1:{port}"]
        client.hosts.refresh()
        with pytest.raises(AttributeError):
            channel.unary_unary(GET)(b"")  # what this channel returns is no call
    assert opened == [f"127.0.0.1:{port}" for port in range(1, 6)]
    assert closed == opened[:3]
    channel.close()
    assert closed == opened


@pytest.mark.parametrize("open_channel", [host_channel, async_host_channel])
def test_a_client_without_hosts_is_refused(open_channel: Any) -> None:
    with pytest.raises(BadValue, match=r"client\.hosts"):
        open_channel(ResilientClient(), "b", grpc.insecure_channel)


def test_a_group_whose_hosts_are_all_gone_is_a_refusal_for_a_stream() -> None:
    def nobody() -> list[str]:
        raise OSError("no resolver")

    client = ResilientClient(None, HostGroup(nobody))
    with pytest.raises(Refused):
        ask_sync(client, ["/T/Stream"])
