"""One port for several languages: who is served, who is not, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import ClassVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.binding import Address, address_of, bind, check_public, is_private, why_not
from sluicegate.doors.listener import Language, Listener, ListenerSettings, new_loop
from sluicegate.doors.sniff import PREFACE
from tests.doors.listening import LOOPS, Caller, Hall, hall, reset, run, until

both = pytest.mark.parametrize("loop", sorted(LOOPS))

FIRST_BYTES = {
    Language.HTTP2: PREFACE + b"frames",
    Language.HTTP1: b"GET / HTTP/1.1\r\n\r\n",
    Language.RESP: b"*1\r\n$4\r\nPING\r\n",
}


@both
def test_each_language_reaches_its_protocol_with_all_its_bytes(loop: str) -> None:
    async def story() -> None:
        async with hall() as here:
            for kind, data in FIRST_BYTES.items():
                caller = await here.call(data)
                await caller.hears(f"{kind.name}:".encode() + data)
                caller.writer.write(b"more")
                await caller.hears(b"more")
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)
            stats = here.listener.stats()
            assert stats.served == {"HTTP/2": 1, "HTTP/1.1": 1, "RESP": 1}
            assert stats.accepted == 3
            assert stats.addresses == 0
            peer = here.made[0].peer
            assert (peer.host, peer.tls, peer.names, peer.reserved) == (
                "127.0.0.1",
                False,
                (),
                False,
            )
            assert peer.listener == Address("127.0.0.1", here.port)

    run(story, loop)


@settings(max_examples=15)
@given(st.data())
def test_however_the_first_bytes_are_cut_they_arrive_whole(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(FIRST_BYTES, key=lambda kind: kind.name)))
    first_bytes = FIRST_BYTES[kind]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(first_bytes) - 1), max_size=6)))

    async def story() -> None:
        async with hall() as here:
            caller = await here.call()
            for start, end in zip([0, *cuts], [*cuts, len(first_bytes)], strict=True):
                caller.writer.write(first_bytes[start:end])
                await caller.writer.drain()
                await asyncio.sleep(0)
            await caller.hears(f"{kind.name}:".encode())
            await until(lambda: here.made[0].input == first_bytes)
            await caller.leave()

    run(story)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.binary(max_size=80), st.sampled_from(["close", "reset", "half"]))))
def test_garbage_half_open_and_reset_connections_leave_nothing_behind(
    visits: list[tuple[bytes, str]],
) -> None:
    async def story() -> None:
        async with hall(sniff_timeout_s=0.05) as here:
            for data, end in visits:
                caller = await here.call(data)
                if end == "reset":
                    reset(caller.writer)
                    continue
                if end == "half":
                    caller.writer.write_eof()
                    answer = await caller.rest()
                    if here.made and answer and not answer.startswith(b"HTTP/1.1 400"):
                        assert answer[answer.find(b":") + 1 :] in (data, b"") or b"bug" in data
                await caller.leave()
            honest = await here.call(FIRST_BYTES[Language.RESP])
            await honest.hears(b"RESP:" + FIRST_BYTES[Language.RESP])
            await honest.leave()
            await until(lambda: here.listener.stats().open == 0)

    run(story)


@both
def test_what_is_unknown_gets_one_line_and_is_gone(loop: str) -> None:
    async def story() -> None:
        async with hall(kinds=[Language.RESP]) as here:
            unknown = await here.call(b"\x00\x01garbage")
            assert b"this port speaks RESP, not unknown" in await unknown.rest()
            web = await here.call(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = await web.rest()
            assert answer.startswith(b"HTTP/1.1 503")
            assert answer.endswith(b"this port speaks RESP, not HTTP/1.1\n")
            hello = await here.call(b"\x16\x03\x01\x02\x00")
            assert (await hello.rest())[:1] == b"\x15"
            await until(lambda: here.listener.stats().open == 1 or here.listener.stats().open == 0)
            for caller in (unknown, web, hello):
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().unknown == 2
            assert here.listener.stats().refused_kind == 1

    run(story, loop)


def test_who_is_refused_and_talks_on_is_not_listened_to_and_then_cut() -> None:
    async def story() -> None:
        async with hall(kinds=[Language.HTTP1]) as here:
            caller = await here.call(b"PING\r\n")
            await caller.hears(b"-ERR this port speaks HTTP/1.1, not RESP\r\n")
            caller.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await caller.rest() == b""
            await until(lambda: here.listener.stats().open == 0)  # though it has not closed
            assert not here.made
            await caller.leave()

    run(story)


@both
def test_who_is_refused_amid_its_sending_still_hears_why(loop: str) -> None:
    async def story() -> None:
        async with hall(kinds=[Language.HTTP1]) as here:
            caller = await here.call(b"PING\r\n" + b"x" * 4_000_000)
            await caller.hears(b"-ERR this port speaks HTTP/1.1, not RESP\r\n")
            assert await caller.reader.read() == b"", "an end, and no reset"
            await caller.leave()

    run(story, loop)


@both
def test_a_client_that_says_too_little_for_too_long_is_closed(loop: str) -> None:
    async def story() -> None:
        async with hall(sniff_timeout_s=0.05) as here:
            silent, slow = await here.call(), await here.call(PREFACE[:10])
            assert await silent.rest() == b""
            assert await slow.rest() == b""
            assert here.listener.stats().sniff_timeouts == 2
            await silent.leave()
            await slow.leave()

    run(story, loop)


@both
def test_beyond_the_most_only_the_web_gets_in_marked_and_not_for_long(loop: str) -> None:
    async def story() -> None:
        bounds = {"connections_max": 1, "connections_reserved": 2, "reserved_s_max": 0.2}
        async with hall(**bounds) as here:
            first = await here.call(FIRST_BYTES[Language.RESP])
            await first.hears(b"RESP:")
            health, other = (
                await here.call(FIRST_BYTES[Language.HTTP1]),
                await here.call(FIRST_BYTES[Language.RESP]),
            )
            await health.hears(b"HTTP1:")
            assert here.made[1].peer.reserved
            assert (await other.rest()).startswith(b"-ERR too many connections")
            await until(lambda: here.listener.stats().reserved_open == 1)
            again = await here.call(FIRST_BYTES[Language.HTTP1])
            await again.hears(b"HTTP1:")
            third = await here.call(FIRST_BYTES[Language.HTTP1])
            assert await third.rest() == b"", "closed as soon as it was accepted"
            await health.rest()  # it has had its time
            await until(lambda: here.listener.stats().reserved_open == 0)
            stats = here.listener.stats()
            assert (stats.open, stats.reserved, stats.refused_full) == (1, 3, 2)
            for caller in (first, health, other, again, third):
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)
            late = await here.call(FIRST_BYTES[Language.RESP])
            await late.hears(b"RESP:")
            await late.leave()

    run(story, loop)


def test_one_address_may_not_take_all_connections_and_gets_its_places_back() -> None:
    async def story() -> None:
        async with hall(connections_per_address_max=2) as here:
            one, two = (
                await here.call(FIRST_BYTES[Language.RESP]),
                await here.call(FIRST_BYTES[Language.RESP]),
            )
            await one.hears(b"RESP:")
            await two.hears(b"RESP:")
            three = await here.call(FIRST_BYTES[Language.RESP])
            assert await three.rest() == b""
            assert here.listener.stats().refused_per_address == 1
            await one.leave()
            await until(lambda: here.listener.stats().open == 1)
            four = await here.call(FIRST_BYTES[Language.RESP])
            await four.hears(b"RESP:")
            assert here.listener.stats().addresses == 1
            for caller in (two, three, four):
                await caller.leave()

    run(story)


def test_connections_of_trusted_proxy_count_for_no_address() -> None:
    async def story() -> None:
        trusted = (ip_network("127.0.0.0/8"),)
        async with hall(connections_per_address_max=1, trusted_proxies=trusted) as here:
            callers = [await here.call(FIRST_BYTES[Language.RESP]) for _ in range(3)]
            for caller in callers:
                await caller.hears(b"RESP:")
            assert here.listener.stats().addresses == 0
            for caller in callers:
                await caller.leave()

    run(story)


@both
def test_connection_whose_access_ended_is_cut_if_it_stays_open(loop: str) -> None:
    class Ended(asyncio.Protocol):
        reloads: ClassVar[list[bool]] = []

        def data_received(self, data: bytes) -> None:
            pass

        def check_callers(self, reloaded: bool) -> bool:
            self.reloads.append(reloaded)
            return True

    async def story() -> None:
        async with Listener(["127.0.0.1:0"], {Language.RESP: lambda _: Ended()}) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.addresses[0].port)
            caller = Caller(reader, writer)
            writer.write(b"PING\r\n")
            await until(lambda: listener.stats().served["RESP"] == 1)
            listener.check_callers()
            assert await caller.rest() == b""
            assert len(Ended.reloads) == 1  # the connection was asked once
            Ended.reloads.clear()

    run(story, loop)


@both
def test_an_idle_connection_is_drained_and_a_busy_one_is_not(loop: str) -> None:
    async def story() -> None:
        async with hall(idle_timeout_s=0.1) as here:
            busy = await here.call(FIRST_BYTES[Language.HTTP2])
            await busy.hears(b"HTTP2:")
            here.made[0].busy = 1
            idle = await here.call(FIRST_BYTES[Language.RESP])
            await idle.hears(b"RESP:" + FIRST_BYTES[Language.RESP])
            assert await idle.rest() == b""
            assert (here.made[0].drains, here.made[1].drains) == (0, 1)
            assert here.made[0].ticks > 0
            assert here.listener.stats().idle_timeouts == 1
            assert [kind for _, kind in here.listener.open_connections()] == [Language.HTTP2]
            await busy.leave()
            await idle.leave()

    run(story, loop)


def test_a_client_that_keeps_talking_is_not_idle() -> None:
    async def story() -> None:
        async with hall(idle_timeout_s=0.15) as here:
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await caller.hears(b"RESP:" + FIRST_BYTES[Language.RESP])
            for _ in range(12):
                caller.writer.write(b".")
                await caller.hears(b".")
                await asyncio.sleep(0.03)
            assert here.listener.stats().idle_timeouts == 0
            await caller.leave()

    run(story)


@both
def test_a_client_that_does_not_read_is_dropped(loop: str) -> None:
    async def story() -> None:
        async with hall(write_stall_s_max=0.1) as here:
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await until(lambda: len(here.made) == 1)
            here.made[0].busy = 1
            here.made[0].transport.write(b"x" * 8_000_000)  # more than the kernel takes, at once
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().not_reading == 1
            await caller.leave()

    run(story, loop)


@both
def test_who_leaves_too_much_unread_is_dropped_at_once(loop: str) -> None:
    async def story() -> None:
        bounds = {"write_backlog_bytes_max": 100_000, "write_stall_s_max": 60}
        async with hall(**bounds) as here:
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await until(lambda: len(here.made) == 1)
            for _ in range(2):  # one reply may be longer than the bound, but nothing behind it
                here.made[0].transport.write(b"x" * 12_000_000)
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.stats().not_reading == 1
            await caller.leave()

    run(story, loop)


@both
def test_long_reply_of_slow_reader_is_not_cut(loop: str) -> None:
    async def story() -> None:
        async with hall(write_backlog_bytes_max=100_000, look_s=0.01) as here:
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await until(lambda: len(here.made) == 1)
            looks = here.made[0].ticks
            here.made[0].transport.write(b"x" * 12_000_000)
            assert here.listener.owed_bytes() > 100_000
            other = await here.call(FIRST_BYTES[Language.RESP])
            await until(lambda: len(here.made) == 2 and here.made[1].ticks > looks + 10)
            caller.writer.write(b"more")
            rest = 12_000_000
            while rest > 0:
                rest -= len(await caller.reader.read(1 << 20))
            assert here.listener.stats().not_reading == 0
            await until(lambda: here.listener.owed_bytes() == 0)
            await caller.leave()
            await other.leave()

    run(story, loop)


def has_made(here: Hall, count: int) -> bool:
    return len(here.made) == count


@both
def test_listener_over_its_bytes_ends_largest(loop: str) -> None:
    async def story() -> None:
        async with hall(owed_bytes_max=24_000_000, look_s=60) as here:
            sizes = (9_000_000, 16_000_000, 12_000_000)
            callers = []
            for number, size in enumerate(sizes):
                callers.append(await here.call(FIRST_BYTES[Language.RESP]))
                await until(partial(has_made, here, number + 1))
                here.made[number].transport.write(b"x" * size)
            await until(lambda: here.listener.stats().open == 2)
            assert [one.lost for one in here.made] == [0, 1, 0]
            assert here.listener.stats().over_owed == 1
            assert here.listener.owed_bytes() <= 24_000_000
            callers.append(await here.call(FIRST_BYTES[Language.RESP]))
            await until(partial(has_made, here, 4))
            here.made[3].transport.write(b"x" * 40_000_000)  # the largest is the one that writes
            await until(lambda: here.listener.stats().over_owed == 2)
            await until(lambda: here.listener.stats().open == 2)
            assert [one.lost for one in here.made] == [0, 1, 0, 1]
            for caller in callers:
                await caller.leave()
            await until(lambda: here.listener.stats().open == 0)
            assert here.listener.owed_bytes() == 0

    run(story, loop)


@both
def test_listener_over_its_bytes_ends_connections_of_who_holds_most(loop: str) -> None:
    async def story() -> None:
        trusted = (ip_network("127.0.0.0/8"),)  # a proxy: its address is that of all callers
        bounds = {"owed_bytes_max": 24_000_000, "look_s": 60, "trusted_proxies": trusted}
        async with hall(**bounds) as here:
            # The largest connection belongs to a caller who holds less than another.
            names = ("ann", "bob", "bob", "bob")
            sizes = (9_000_000, 6_000_000, 5_000_000, 4_000_000)
            callers = []
            for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
                callers.append(await here.call(FIRST_BYTES[Language.RESP]))
                await until(partial(has_made, here, number + 1))
                here.made[number].name = name
                here.made[number].held = size
                here.made[number].transport.write(b"x" * 8_000_000)  # not read: it is counted now
            await until(lambda: here.listener.stats().over_owed > 0)
            await until(lambda: here.listener.owed_bytes() <= 24_000_000)
            assert (here.made[0].lost, here.made[1].lost) == (0, 1)
            for caller in callers:
                await caller.leave()

    run(story, loop)


@both
def test_input_held_by_protocol_counts_as_owed(loop: str) -> None:
    async def story() -> None:
        async with hall(owed_bytes_max=1 << 20, look_s=0.01) as here:
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await until(lambda: len(here.made) == 1)
            here.made[0].held = 1 << 19
            await until(lambda: here.listener.owed_bytes() >= 1 << 19)
            assert here.listener.stats().open == 1
            here.made[0].held = 1 << 21
            caller.writer.write(b"more")
            await until(lambda: here.listener.stats().over_owed == 1)
            await until(lambda: here.listener.stats().open == 0)
            await caller.leave()

    run(story, loop)


@both
def test_who_asks_on_and_reads_nothing_is_found_without_a_look(loop: str) -> None:
    async def story() -> None:
        async with hall(write_backlog_bytes_max=100_000, look_s=60) as here:
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await until(lambda: len(here.made) == 1)
            for _ in range(2):
                here.made[0].transport.write(b"x" * 12_000_000)
            caller.writer.write(b"more")
            await until(lambda: here.listener.stats().not_reading == 1)
            await caller.leave()

    run(story, loop)


@both
def test_a_bug_in_one_protocol_ends_one_connection(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with hall() as here:
            other, bad = (
                await here.call(FIRST_BYTES[Language.RESP]),
                await here.call(FIRST_BYTES[Language.RESP]),
            )
            await bad.hears(b"RESP:" + FIRST_BYTES[Language.RESP])
            bad.writer.write(b"bug")
            assert await bad.rest() == b""
            assert here.listener.stats().faults == 1
            await other.hears(b"RESP:" + FIRST_BYTES[Language.RESP])
            at_once = await here.call(b"*bug")
            await at_once.rest()
            assert here.listener.stats().faults == 2
            for caller in (other, bad, at_once):
                await caller.leave()

    run(story, loop)
    assert "its protocol failed" in caplog.text


@both
def test_closing_lets_what_is_under_way_finish_and_cuts_the_rest_after_the_grace(loop: str) -> None:
    async def story() -> None:
        async with hall() as here:
            port = here.port
            callers = [await here.call(FIRST_BYTES[Language.HTTP2]) for _ in range(3)]
            for caller in callers:
                await caller.hears(b"HTTP2:" + FIRST_BYTES[Language.HTTP2])
            await until(lambda: here.listener.stats().open == 3)
            ends, stays, free = here.made
            ends.busy = stays.busy = 1
            asyncio.get_running_loop().call_later(0.05, ends.finish)
            began_s = asyncio.get_running_loop().time()
            assert await here.listener.close(0.3) == 1
            assert asyncio.get_running_loop().time() - began_s >= 0.29
            assert [one.drains for one in (ends, stays, free)] == [1, 1, 1]
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            for caller in callers:
                assert await caller.rest() == b""
                await caller.leave()

    run(story, loop)


def test_close_ends_connection_that_never_sends() -> None:
    async def story() -> None:
        async with hall() as here:
            silent = await here.call()
            half = await here.call(b"P")
            await until(lambda: here.listener.stats().open == 2)
            assert await here.listener.close(60.0) == 0
            for caller in (silent, half):
                assert await caller.rest() == b""
                await caller.leave()

    run(story)


def test_close_serves_connections_in_accept_queue() -> None:
    async def story() -> None:
        async with hall() as here:
            link = socket.create_connection(("127.0.0.1", here.port))  # not accepted yet
            link.sendall(FIRST_BYTES[Language.RESP])
            assert await here.listener.close(60.0) == 0
            with link:
                assert link.recv(100) == b"RESP:" + FIRST_BYTES[Language.RESP]
                assert link.recv(100) == b""

    run(story)


def test_closing_does_not_wait_when_nobody_is_there() -> None:
    async def story() -> None:
        async with hall() as here:
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await caller.hears(b"RESP:")
            async with asyncio.timeout(60):
                assert await here.listener.close(30.0) == 0
            await caller.leave()

    run(story)


@both
def test_a_protocol_that_offers_nothing_more_is_served_and_closed_too(loop: str) -> None:
    class Plain(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            cast("asyncio.Transport", self.transport).write(data)

    async def story() -> None:
        async with Listener(["127.0.0.1:0"], {Language.RESP: lambda _: Plain()}) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.addresses[0].port)
            caller = Caller(reader, writer)
            writer.write(b"PING\r\n")
            await caller.hears(b"PING\r\n")
            assert await listener.close(5.0) == 0
            await caller.leave()

    run(story, loop)


@both
def test_a_unix_socket_is_served_kept_private_and_taken_away(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "here.sock"

    async def story() -> None:
        async with hall([f"unix:{path}"], connections_per_address_max=1, unix_mode=0o600) as here:
            assert path.stat().st_mode & 0o777 == 0o600
            callers = []
            for _ in range(3):
                reader, writer = await asyncio.open_unix_connection(str(path))
                callers.append(Caller(reader, writer))
                writer.write(FIRST_BYTES[Language.RESP])
                await callers[-1].hears(b"RESP:")
            assert here.made[0].peer.host == ""
            assert here.listener.addresses == (Address("", 0, str(path)),)
            with pytest.raises(SluicegateError, match="is in use"):
                bind(address_of(f"unix:{path}"), ListenerSettings())
        for caller in callers:
            assert await caller.rest() == FIRST_BYTES[Language.RESP]
            await caller.leave()
        assert not path.exists()

    run(story, loop)


def test_a_unix_socket_left_by_the_dead_is_taken_over_and_a_file_is_not(tmp_path: Path) -> None:
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    (bound,) = bind(address_of(f"unix:{left}"), ListenerSettings())
    bound.close()
    notes = tmp_path / "notes"
    notes.write_text("mine")
    with pytest.raises(SluicegateError, match="in use"):
        bind(address_of(f"unix:{notes}"), ListenerSettings())
    assert notes.read_text() == "mine"
    with pytest.raises(SluicegateError, match=r"the folder of unix:.* is not there"):
        bind(address_of(f"unix:{tmp_path}/no/such.sock"), ListenerSettings())


def test_several_listeners_share_a_port_when_they_say_so() -> None:
    async def story() -> None:
        async with hall(reuse_port=True) as one:
            at = f"127.0.0.1:{one.port}"
            async with hall([at], reuse_port=True) as two:
                callers = [await one.call(FIRST_BYTES[Language.RESP]) for _ in range(40)]
                for caller in callers:
                    await caller.hears(b"RESP:")
                served = [here.listener.stats().served["RESP"] for here in (one, two)]
                assert sum(served) == 40
                assert min(served) > 0
                for caller in callers:
                    await caller.leave()
            with pytest.raises(SluicegateError, match=f"port {one.port} on 127.0.0.1 is in use"):
                bind(address_of(at), ListenerSettings())

    run(story)


def test_a_socket_that_was_bound_before_is_served() -> None:
    async def story() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        async with hall([bound]) as here:
            assert here.port == bound.getsockname()[1]
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await caller.hears(b"RESP:")
            await caller.leave()
        assert bound.fileno() == -1

    run(story)


def test_a_name_with_two_addresses_is_served_on_both_with_one_port() -> None:
    async def story() -> None:
        async with hall(["localhost:0"]) as here:
            assert len({address.port for address in here.listener.addresses}) == 1
            assert {address.host for address in here.listener.addresses} <= {"127.0.0.1", "::1"}
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await caller.hears(b"RESP:")
            await caller.leave()

    run(story)


def test_when_one_address_cannot_be_had_the_others_are_given_back() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                free = probe.getsockname()[1]
            listener = Listener(
                [f"127.0.0.1:{free}", f"127.0.0.1:{port}"],
                {Language.RESP: lambda _: asyncio.Protocol()},
            )
            with pytest.raises(SluicegateError, match=f"port {port} on 127.0.0.1 is in use; end"):
                listener.start()
            socket.create_server(("127.0.0.1", free)).close()

    run(story)


def test_when_the_machine_has_no_more_sockets_accepting_pauses_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with hall(accept_pause_s=0.02) as here:
            real, failures = socket.socket.accept, [errno.ECONNABORTED, errno.EMFILE, errno.EMFILE]

            def accept(self: socket.socket) -> object:
                if failures:
                    number = failures.pop(0)
                    raise OSError(number, os.strerror(number))
                return real(self)

            monkeypatch.setattr(socket.socket, "accept", accept)
            caller = await here.call(FIRST_BYTES[Language.RESP])
            await caller.hears(b"RESP:")
            assert here.listener.stats().accept_errors == 3
            await caller.leave()

    run(story)
    assert "no more sockets" in caplog.text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7070", Address("127.0.0.1", 7070)),
        ("[::1]:0", Address("::1", 0)),
        ("localhost:80", Address("localhost", 80)),
        ("unix:/run/a.sock", Address("", 0, "/run/a.sock")),
    ],
)
def test_an_address_is_read_and_written_the_same(text: str, address: Address) -> None:
    assert address_of(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7070",
        ":7070",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "::1:80",
        "127.0.0.1:٣",
        "unix:",
        "unix:" + "x" * 108,
    ],
)
def test_what_is_no_address_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(BadValue, match="listen"):
        address_of(text)


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/a", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
        ("[::ffff:10.0.0.1]:1", False),
    ],
)
def test_an_address_that_others_reach_needs_tls_and_authentication(
    text: str, private: bool
) -> None:
    address = address_of(text)
    assert is_private(address) is private
    check_public(address, tls=True, auth=True, insecure=False)
    check_public(address, tls=False, auth=False, insecure=True)
    for tls, auth in ((False, False), (True, False), (False, True)):
        if private:
            check_public(address, tls=tls, auth=auth, insecure=False)
            continue
        with pytest.raises(BadValue, match="others can reach it") as error:
            check_public(address, tls=tls, auth=auth, insecure=False)
        assert ("--tls-cert" in error.value.remedy) is not tls
        assert "tokens" in error.value.remedy
        assert "--insecure" in error.value.remedy


def test_what_stands_in_the_way_is_said_in_a_sentence() -> None:
    at = Address("127.0.0.1", 80)
    assert "from 1024 up" in why_not(at, OSError(errno.EACCES, "no"))
    assert "is no address of this machine" in why_not(at, OSError(errno.EADDRNOTAVAIL, "no"))
    assert "a folder that we may write" in why_not(
        Address("", 0, "/a"), OSError(errno.EACCES, "no")
    )
    assert "odd" in why_not(at, OSError(errno.EIO, "odd"))
    with pytest.raises(SluicegateError, match=r"192\.0\.2\.1 is no address of this machine"):
        bind(address_of("192.0.2.1:0"), ListenerSettings())
    with pytest.raises(SluicegateError, match="no address or name that is known here"):
        bind(address_of("no-such-name.invalid:0"), ListenerSettings())


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(BadValue, match=r"listener\.connections_max: 0"):
        ListenerSettings(connections_max=0)
    with pytest.raises(BadValue, match=r"listener\.idle_timeout_s"):
        ListenerSettings(idle_timeout_s=0)
    with pytest.raises(BadValue, match="listen: "):
        Listener([], {})


def test_the_loop_is_uvloops_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop()
    assert type(loop).__module__ == "uvloop"
    loop.close()
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    loop = new_loop()
    assert type(loop).__module__.startswith("asyncio")
    loop.close()
