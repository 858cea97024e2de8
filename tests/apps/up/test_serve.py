from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from sluicegate.apps.up.serve import hosts_of, listen, netloc, reachable, served
from sluicegate.contracts.errors import SluicegateError


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application that is never asked."""


def test_the_server_leaves_signals_to_whoever_runs_it() -> None:
    async def story() -> None:
        before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
        async with served(nothing, listen("127.0.0.1", 0)):
            during = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
        assert during == before

    asyncio.run(story())


def test_the_socket_is_closed_when_the_block_ends_in_an_error() -> None:
    async def story() -> None:
        listener = listen("127.0.0.1", 0)
        with pytest.raises(ZeroDivisionError):
            async with served(nothing, listener):
                raise ZeroDivisionError
        assert listener.fileno() == -1

    asyncio.run(story())


def test_an_address_that_is_not_of_this_machine_is_told_so() -> None:
    with pytest.raises(SluicegateError, match="no address of this machine; choose one"):
        listen("192.0.2.1", 7000)


def test_hosts_are_the_names_by_which_this_machine_calls_itself() -> None:
    assert hosts_of("127.0.0.1", 7000) == {"127.0.0.1:7000", "localhost:7000", "[::1]:7000"}
    assert "127.0.0.2:7000" in hosts_of("127.0.0.2", 7000)
    assert {"localhost", "localhost:80", "[::1]"} <= hosts_of("127.0.0.1", 80)


def test_a_listener_on_every_address_is_reached_by_the_loopback() -> None:
    assert (reachable("0.0.0.0"), reachable("::")) == ("127.0.0.1", "::1")
    assert reachable("127.0.0.2") == "127.0.0.2"
    assert netloc("::1", 80) == "[::1]:80"
