"""Order: what is said on one connection without waiting has the effect of one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.engine import KeyRange, Place
from sluicegate.contracts.key_values import CallContext, PlacePage, Row, RowPage, Write
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.order import Order
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.testing.key_values import MemoryKeyValues
from sluicegate.wire.resp import command
from tests.doors.resp.kv.door import Everybody
from tests.doors.resp.talk import Talk
from tests.stores.redis.live import run


class Shuffled(MemoryKeyValues):
    """Reads and writes take effect after some turns of the loop, in no order to rely on."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance
        self.most = 0  # under way at once
        self._now = 0

    async def _turn(self) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        for _ in range(self.chance.randrange(5)):
            await asyncio.sleep(0)
        self._now -= 1

    async def get(self, table: str, partition: bytes, sort: bytes, call: CallContext) -> Row | None:
        await self._turn()
        row = super().get(table, partition, sort, call)
        assert row is None or isinstance(row, Row)
        return row

    async def get_each(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> Sequence[Row | None]:
        await self._turn()
        rows = super().get_each(table, places, call)
        assert isinstance(rows, list)
        return rows

    async def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext, token: bytes = b""
    ) -> RowPage:
        await self._turn()
        return await super().scan(table, partition, span, call, token)

    async def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> PlacePage:
        await self._turn()
        return await super().walk(table, after, rows_max, call)


def door_to(service: MemoryKeyValues, **reply: Any) -> RespDoor:
    return RespDoor(service, Everybody(), RespSettings(**reply), KEY_VALUES, service.clock)


# The same places in several ways.
key = st.sampled_from(["t:a", "t:a:", "t:%61", "t:b", "t:a:x", "u:a"])
value = st.sampled_from(["1", "2", "3"])
command_lists = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["GET", "DEL", "GETDEL", "PERSIST", "TTL", "EXISTS"]), key),
        st.tuples(st.just("SET"), key, value),
        st.tuples(st.just("SET"), key, value, st.sampled_from(["GET", "NX", "XX", "KEEPTTL"])),
        st.tuples(st.just("MGET"), key, key),
        st.tuples(st.just("MSET"), key, value, key, value),
        st.tuples(st.just("EXPIRE"), key, st.just("100")),
        st.just(("SCAN", "0", "MATCH", "t:*")),
        st.just(("SG.RANGE", "t:a")),
        st.just(("SG.BULK", "LIST", "t")),
        st.just(("PING",)),
        st.just(("NONSENSE",)),
    ),
    max_size=25,
)


async def pipelined(commands: list[tuple[str, ...]], seed: int, **reply: Any) -> bytes:
    talk = Talk(door_to(Shuffled(Random(seed)), **reply))
    talk.protocol.data_received(b"".join(command(*words) for words in commands))
    await talk.settled()
    assert talk.protocol._blocked_command is None
    assert talk.wire.is_reading()
    talk.lose()
    return talk.wire.output


async def in_turn(commands: list[tuple[str, ...]]) -> bytes:
    talk = Talk(door_to(MemoryKeyValues()))
    for words in commands:
        await talk.request(command(*words))
    talk.lose()
    return talk.wire.output


@settings(max_examples=100, deadline=None)
@given(command_lists, st.integers(0, 1_000), st.sampled_from([1, 2, 5, 1_024]))
def test_a_pipeline_has_the_effect_of_one_command_after_the_other(
    commands: list[tuple[str, ...]], seed: int, owed_max: int
) -> None:
    async def story() -> None:
        piped = await pipelined(commands, seed, replies_owed_max=owed_max)
        assert piped == await in_turn(commands)

    asyncio.run(story())


def test_what_does_not_touch_goes_side_by_side() -> None:
    async def story() -> None:
        service = Shuffled(Random(1))
        talk = Talk(door_to(service))
        sent = [command("SET", f"t:{number}", "x") for number in range(100)]
        sent += [command("GET", "t:other") for _ in range(100)]
        talk.protocol.data_received(b"".join(sent))
        assert talk.protocol.under_way() == 200
        await talk.settled()
        assert service.most > 150
        talk.lose()

    run(story())


def test_a_command_that_must_wait_stops_the_reading_until_it_has_run() -> None:
    async def story() -> None:
        service = MemoryKeyValues(late=True)
        talk = Talk(door_to(service))
        talk.protocol.data_received(
            command("SET", "t:a", 1) + command("GET", "t:a") + command("PING")
        )
        assert talk.protocol.under_way() == 1
        assert not talk.wire.is_reading()
        await talk.settled()
        assert talk.wire.output == b"+OK\r\n$1\r\n1\r\n+PONG\r\n"
        assert talk.wire.is_reading()
        talk.lose()

    run(story())


def test_one_who_says_no_more_is_still_answered_what_was_held() -> None:
    async def story() -> None:
        talk = Talk(door_to(MemoryKeyValues(late=True)))
        talk.protocol.data_received(command("SET", "t:a", 1) + command("GET", "t:a"))
        assert talk.protocol.eof_received()
        while not talk.wire.is_closing():
            await asyncio.sleep(0)
        assert talk.wire.output == b"+OK\r\n$1\r\n1\r\n"
        talk.lose()

    run(story())


def test_a_held_command_has_its_deadline_from_when_it_came_and_waits_in_no_queue_of_ours() -> None:
    async def story() -> None:
        service = MemoryKeyValues(late=True)
        talk = Talk(door_to(service))
        began_us = service.clock.now_us()
        talk.protocol.data_received(command("SG.DEADLINE", 100))
        talk.protocol.data_received(command("SET", "t:a", 1) + command("GET", "t:a"))
        service.clock.advance(ms=5)  # type: ignore[attr-defined]
        talk.protocol.data_received(command("GET", "t:b"))
        await talk.settled()
        service.clock.advance(ms=5)  # type: ignore[attr-defined]
        await talk.request(command("GET", "t:c"))
        deadlines = [(one.call.deadline_us or 0) - began_us for one in service.calls]
        assert deadlines == [100_000, 100_000, 100_000, 110_000]
        arrived = [one.call.arrived_us - began_us for one in service.calls]
        assert arrived == [0, 5_000, 5_000, 10_000]
        talk.lose()

    run(story())


def test_no_more_keys_are_remembered_than_replies_may_be_owed() -> None:
    order = Order(KEY_VALUES, 3)
    for number in range(3):
        parts = [b"SET", b"t:%d" % number, b"x"]
        assert order.may_run(parts)
        order.note(parts)
    assert not order.may_run([b"SET", b"t:9", b"x"])
    assert order.may_run([b"PING"])
    order.clear()
    assert order.may_run([b"SET", b"t:9", b"x"])


def test_who_waits_for_whom() -> None:
    def may(first: list[bytes], second: list[bytes]) -> bool:
        order = Order(KEY_VALUES, 100)
        order.note(first)
        return order.may_run(second)

    get_a, get_b = [b"GET", b"t:a"], [b"get", b"t:b"]
    set_a, set_b = [b"SET", b"t:a", b"1"], [b"set", b"t:b", b"1"]
    scan, bulk = [b"SCAN", b"0"], [b"SG.BULK", b"LIST", b"t"]
    for first, second in (
        (get_a, get_a),
        (get_a, set_b),
        (set_a, get_b),
        (set_a, set_b),
        (get_a, scan),
        (scan, get_a),
        (scan, scan),
    ):
        assert may(first, second)
    for first, second in (
        (get_a, set_a),
        (set_a, get_a),
        (set_a, set_a),
        (set_a, scan),
        (scan, set_a),
        (bulk, get_a),
        (bulk, scan),
        (bulk, bulk),
        (get_a, bulk),
        (set_a, bulk),
        (scan, bulk),
        ([b"MSET", b"t:b", b"1", b"t:a", b"1"], get_a),
        (set_a, [b"MGET", b"t:b", b"t:a"]),
        (set_a, [b"GET", b"t:a:"]),
        (set_a, [b"GET", b"t:%61"]),
    ):
        assert not may(first, second)
    assert may([b"MSET", b"t:b", b"t:a"], get_a)  # a value is no key


def test_a_write_if_is_counted_as_one() -> None:
    async def story() -> None:
        service = Shuffled(Random(2))
        talks = [Talk(door_to(service)) for _ in range(5)]
        request = command("SG.PUTIF", "t:a", "x", "ABSENT")
        for talk in talks:
            talk.protocol.data_received(request * 4)
        for talk in talks:
            await talk.settled()
        done = sum(talk.wire.output.count(b"*3\r\n:1\r\n") for talk in talks)
        assert done == 1
        await service.write("t", [Write(b"a", b"", None)], service.calls[0].call)
        for talk in talks:
            talk.lose()

    run(story())


def test_what_is_out_is_waited_for_no_more() -> None:
    async def story() -> None:
        talk = Talk(door_to(MemoryKeyValues(late=True)))
        await talk.request(command("SET", "t:a", 1))
        talk.protocol.data_received(command("SET", "t:b", 1) + command("SET", "t:a", 1))
        assert talk.protocol.under_way() == 2
        await talk.settled()
        talk.lose()

    run(story())
    order = Order(KEY_VALUES, 100)
    for wide in ([b"SCAN", b"0"], [b"SG.BULK", b"LIST", b"t"]):
        order.note(wide)
        assert not order.may_run([b"SET", b"t:a", b"1"])
        order.clear()
        assert order.may_run([b"SET", b"t:a", b"1"])
