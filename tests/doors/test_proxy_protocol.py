"""The PROXY protocol: whose connection it is, where a proxy of ours says so, and nowhere else."""

from __future__ import annotations

import asyncio
import logging
import ssl
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from sluicegate.doors.listener import Language
from sluicegate.doors.sniff import PREFACE
from sluicegate.doors.tls import Tls
from tests.doors.listening import LOOPS, Caller, Hall, hall, run, until
from tests.doors.test_tls import Authority

both = pytest.mark.parametrize("loop", sorted(LOOPS))
OURS = (ip_network("127.0.0.0/8"),)
V1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"
V2_LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
FIRST_BYTES = {
    Language.HTTP2: PREFACE,
    Language.HTTP1: b"GET / HTTP/1.1\r\n\r\n",
    Language.RESP: b"*1\r\n$4\r\nPING\r\n",
}
PING = FIRST_BYTES[Language.RESP]


def v2(host: int, port: int = 1) -> bytes:
    """A header for 192.0.2.`host`."""
    return (
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"
        + bytes((192, 0, 2, host, 192, 0, 2, 250))
        + port.to_bytes(2)
        + (443).to_bytes(2)
    )


async def served(here: Hall, head: bytes) -> Caller:
    """A connection that has been answered."""
    caller = await here.call(head + PING)
    await caller.hears(b"RESP:" + PING)
    return caller


@both
@pytest.mark.parametrize("language", FIRST_BYTES, ids=str)
@pytest.mark.parametrize("header", [V1, v2(1, 56_324)], ids=["v1", "v2"])
def test_a_connection_is_whose_the_proxy_says(loop: str, language: Language, header: bytes) -> None:
    async def story() -> None:
        async with hall(proxies=OURS) as here:
            first = FIRST_BYTES[language]
            for whole in (True, False):
                caller = await here.call()
                pieces = [header + first] if whole else [bytes((one,)) for one in header + first]
                for piece in pieces:
                    caller.writer.write(piece)
                    await caller.writer.drain()
                    await asyncio.sleep(0)
                await caller.hears(f"{language.name}:".encode())
                await until(lambda: here.made[-1].input == first)
                peer = here.made[-1].peer
                assert (peer.host, peer.port) == ("192.0.2.1", 56_324)
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().addresses == 0

    run(story, loop)


@both
def test_tls_begins_behind_the_header(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        async with hall(proxies=OURS, tls=Tls(authority.files())) as here:
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(v2(1, 9))
            await writer.start_tls(authority.client("h2"), server_hostname="127.0.0.1")
            caller = Caller(reader, writer)
            writer.write(PREFACE)
            await caller.hears(b"HTTP2:" + PREFACE)
            peer = here.made[0].peer
            assert (peer.host, peer.port, peer.tls, peer.alpn) == ("192.0.2.1", 9, True, "h2")
            await caller.leave()
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(
                    "127.0.0.1",
                    here.port,
                    ssl=authority.client("h2"),
                    server_hostname="127.0.0.1",
                )
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().proxy_faults == 1

    run(story, loop)


@both
def test_who_is_none_of_our_proxies_is_not_believed(loop: str) -> None:
    async def story() -> None:
        async with hall(proxies=(ip_network("192.0.2.0/24"),)) as here:
            liar = await here.call(V1 + PING)
            assert b"not the PROXY protocol" in await liar.rest()
            honest = await served(here, b"")
            assert here.made[-1].peer.host == "127.0.0.1"
            for caller in (liar, honest):
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)

    run(story, loop)


@both
def test_a_proxy_that_says_nothing_of_whom_it_connects_is_closed_and_named_once(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with hall(proxies=OURS, sniff_timeout_s=0.2) as here:
            half = await here.call(V1[:20])
            for data in (PING, b"PROXY nonsense\r\n", V1[:20]):
                caller = await here.call(data)
                assert await caller.rest() == b""
                await caller.leave()
            gone = await here.call(V1[:20])
            await gone.leave()
            assert await half.rest() == b""
            await half.leave()
            honest = await served(here, V1)
            await honest.leave()
            await until(lambda: here.listener.stats().open == 0)
            stats = here.listener.stats()
            assert (stats.proxy_faults, stats.accepted, stats.addresses) == (4, 6, 0)
            assert [made.peer.host for made in here.made] == ["192.0.2.1"]

    with caplog.at_level(logging.WARNING, "sluicegate.listener"):
        run(story, loop)
    (line,) = caplog.messages
    assert line.startswith("127.0.0.1 is one of our proxies")
    assert "--proxy-protocol" in line


@both
def test_a_proxy_may_speak_for_itself(loop: str) -> None:
    """To see whether we are here; that is no client's connection."""

    async def story() -> None:
        async with hall(proxies=OURS, connections_per_address_max=1) as here:
            checks = [await served(here, head) for head in (V2_LOCAL, b"PROXY UNKNOWN\r\n")]
            assert {made.peer.host for made in here.made} == {"127.0.0.1"}
            assert here.listener.stats().addresses == 0
            for caller in checks:
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)

    run(story, loop)


@both
def test_connections_are_counted_for_the_client_and_not_for_the_proxy(loop: str) -> None:
    async def story() -> None:
        async with hall(proxies=OURS, connections_per_address_max=2) as here:
            open_ = [await served(here, v2(host)) for host in (1, 1, 2, 3)]
            assert here.listener.stats().addresses == 3
            one_more = await here.call(v2(1) + PING)
            assert await one_more.rest() == b""
            assert here.listener.stats().refused_per_address == 1
            await open_.pop(0).leave()
            await until(lambda: here.listener.stats().open == 3)
            open_.append(await served(here, v2(1)))
            for caller in (*open_, one_more):
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().addresses == 0

    run(story, loop)


def test_who_has_an_ipv6_network_has_one_share_of_connections() -> None:
    """One caller usually has 2^64 addresses, which are as many shares otherwise."""

    def header(address: str) -> bytes:
        return b"PROXY TCP6 %b 2001:db8::1 1 443\r\n" % address.encode()

    async def story() -> None:
        async with hall(proxies=OURS, connections_per_address_max=2) as here:
            open_ = [await served(here, header(f"2001:db8:1:1::{one}")) for one in (1, 2)]
            third = await here.call(header("2001:db8:1:1:ffff::3") + PING)
            assert await third.rest() == b""
            open_.append(await served(here, header("2001:db8:1:2::1")))
            open_.append(await served(here, header("::ffff:192.0.2.1")))
            open_.append(await served(here, header("::ffff:192.0.2.2")))
            assert here.made[-1].peer.host == "192.0.2.2"
            assert here.listener.stats().addresses == 4
            for caller in (*open_, third):
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)

    run(story)


@both
def test_the_end_does_not_wait_for_a_header(loop: str) -> None:
    async def story() -> None:
        made: Any = Hall(proxies=OURS, sniff_timeout_s=3_600)
        async with made.listener:
            caller = await made.call(V1[:20])
            await until(lambda: made.listener.stats().open == 1)
        assert await caller.rest() == b""
        await caller.leave()

    run(story, loop)
