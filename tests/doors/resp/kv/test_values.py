"""Single values: what Redis has no word for, conditions, errors, calls of the service."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.engine import Place
from sluicegate.contracts.errors import BadValue, Conflict, Refused, Unavailable
from sluicegate.contracts.key_values import (
    CallContext,
    tag_of,
)
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT, SHED, Reason
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.kv.transactions import COMMANDS_MAX, WATCHED_MAX
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.testing import START_US
from sluicegate.testing.key_values import MemoryKeyValues
from sluicegate.wire.resp import Part, command
from tests.doors.resp.kv.door import Client, Everybody
from tests.doors.resp.talk import Talk
from tests.stores.redis.live import run

S = 1_000_000


@pytest.mark.parametrize("late", [False, True])
def test_a_value_is_written_read_and_gone_when_its_time_is_over(late: bool) -> None:
    async def story() -> None:
        client = Client(late)
        assert await client.say("SET users:42:name Ann PX 1500") == b"OK"
        assert await client.say("GET users:42:name") == b"Ann"
        assert await client.say("STRLEN users:42:name") == 3
        assert await client.say("TYPE users:42:name") == b"string"
        assert await client.say("PTTL users:42:name") == 1_500
        assert await client.say("TTL users:42:name") == 2
        client.hand.advance(us=1)
        assert await client.say("PTTL users:42:name") == 1_500
        client.hand.advance(us=1_000)
        assert await client.say("PTTL users:42:name") == 1_499
        client.hand.advance(s=2)
        assert await client.say("GET users:42:name") is None
        assert await client.say("TTL users:42:name") == -2
        assert await client.say("TYPE users:42:name") == b"none"
        client.talk.lose()

    run(story())


def test_what_is_answered_at_once_leaves_at_once() -> None:
    async def story() -> None:
        client = Client()
        await client.say("MSET t:a 1 u:b 2")
        requested = (
            "GET t:a",
            "MGET t:a u:b t:c",
            "EXISTS t:a",
            "TYPE t:a",
            "TTL t:a",
            "STRLEN t:a",
        )
        for line in requested:
            assert client.talk.say(command(*line.split()))
            assert client.talk.protocol.under_way() == 0
        client.talk.lose()

    run(story())


@pytest.mark.parametrize("line", ["GET t:long", "MGET t:long t:a", "SG.RANGE t:long"])
def test_a_long_value_that_many_wait_for_is_copied_only_for_those_who_read(line: str) -> None:
    async def story() -> None:
        client = Client(late=True)
        await client.say(("SET", "t:long", b"x" * 1_000_000))
        await client.say("SET t:a 1")
        talks = [Talk(client.door) for _ in range(10)]
        for talk in talks:
            talk.wire.write = choking(talk)  # type: ignore[assignment,method-assign]
        tracemalloc.start()
        try:
            for talk in talks:
                talk.protocol.data_received(command(*line.split()) * 100)
            for _ in range(500):
                await asyncio.sleep(0)
            size = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        # The first of each connection is on its way; of the others there is the value alone.
        assert [len(talk.wire.writes) for talk in talks] == [1] * 10
        assert size < 2 * 10 * 1_000_000
        reader = hiredis.Reader()
        talks[0].protocol.resume_writing()
        for _ in range(10_000):
            talks[0].turns.end()
            await asyncio.sleep(0)
            talks[0].protocol.resume_writing()
        reader.feed(talks[0].wire.output)
        replies = [reader.gets() for _ in range(100)]
        assert all(each == replies[0] for each in replies)
        assert reader.gets() is False
        for talk in talks:
            talk.lose()
        client.talk.lose()

    run(story())


def choking(talk: Talk) -> Callable[[bytes], None]:
    """Its client takes one write, and no more until it is told so."""
    write = talk.wire.write

    def once(data: bytes) -> None:
        write(data)
        talk.protocol.pause_writing()

    return once


@pytest.mark.parametrize("late", [False, True])
def test_several_tables_are_read_side_by_side_in_the_order_asked_for(late: bool) -> None:
    async def story() -> None:
        client = Client(late)
        assert await client.say("MSET t:a 1 u:a 2 t:b 3 t:a 4") == b"OK"
        assert await client.say("MGET u:a t:b u:x t:a t:b") == [b"2", b"3", None, b"4", b"3"]
        assert await client.say("EXISTS u:a t:b u:x t:a t:b") == 4
        assert await client.say("DEL u:a t:b u:x t:b") == 2
        assert [one.operation for one in client.service.calls].count("write") == 2
        odd = "ERR wrong number of arguments for 'mset' command"
        assert await client.say("MSET t:a 1 t:b") == odd
        client.talk.lose()

    run(story())


def test_set_with_nx_and_get_tells_what_was_in_the_way() -> None:
    async def story() -> None:
        client = Client()
        assert await client.say("SET t:a 1 NX GET") is None
        assert await client.say("SET t:a 2 GET NX EX 5") == b"1"
        assert await client.say("GET t:a") == b"1"
        assert await client.say("TTL t:a") == -1
        client.talk.lose()

    run(story())


@pytest.mark.parametrize(
    "line",
    ["SET t:a 2 EXAT {}", "SET t:a 2 XX PXAT {}000", "GETEX t:a PXAT {}000", "EXPIREAT t:a {}"],
)
def test_a_value_ends_at_its_instant_however_long_the_command_waited(line: str) -> None:
    async def story() -> None:
        client = Client(late=True)
        await client.say("SET t:a 1")
        end_s = client.clock.now_us() // 1_000_000 + 100
        saying = asyncio.ensure_future(client.say(line.format(end_s)))
        await asyncio.sleep(0)  # it is on its way
        client.hand.advance(s=40)
        await saying
        end_us = end_s * 1_000_000 - client.clock.now_us()
        assert await client.say("PTTL t:a") == -(-end_us // 1_000)
        client.talk.lose()

    run(story())


def test_keepttl_keeps_the_instant_and_a_new_value_has_none() -> None:
    async def story() -> None:
        client = Client()
        await client.say("SET t:a 1 EX 100")
        client.hand.advance(s=40)
        assert await client.say("SET t:a 2 KEEPTTL") == b"OK"
        assert await client.say("TTL t:a") == 60
        assert await client.say("SET t:a 3 XX GET KEEPTTL") == b"2"
        assert await client.say("TTL t:a") == 60
        assert await client.say("SET t:a 4 GET") == b"3"
        assert await client.say("TTL t:a") == -1
        assert await client.say("SET t:b 4 XX GET") is None
        assert await client.say("GET t:b") is None
        client.talk.lose()

    run(story())


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_write_on_condition_tells_what_is_in_its_way(protocol: int) -> None:
    async def story() -> None:
        client = Client()
        await client.say(("HELLO", protocol))

        def reply(done: int, tag: bytes | None, value: bytes | None) -> Any:
            fields = {b"done": done, b"tag": tag, b"value": value}
            return fields if protocol == 3 else [done, tag, value]

        one = tag_of(b"1").hex()
        assert await client.say("SG.PUTIF t:a 1 PRESENT") == reply(0, None, None)
        assert await client.say("SG.PUTIF t:a 1 ABSENT EX 10") == reply(1, None, None)
        assert await client.say("TTL t:a") == 10
        assert await client.say("SG.PUTIF t:a 2 absent") == reply(0, one.encode(), b"1")
        assert await client.say("SG.PUTIF t:a 2 TAG", one) == reply(1, None, None)
        two = tag_of(b"2").hex().encode()
        assert await client.say("SG.PUTIF t:a 3 TAG", one.upper()) == reply(0, two, b"2")
        assert await client.say("SG.PUTIF t:a 3 PRESENT PXAT", START_US // 1000 + 5) == reply(
            1, None, None
        )
        assert await client.say("PTTL t:a") == 5
        for words, why in (
            ("SG.PUTIF t:a 1 MAYBE", "give ABSENT, PRESENT or TAG"),
            ("SG.PUTIF t:a 1 TAG", "give ABSENT, PRESENT or TAG"),
            ("SG.PUTIF t:a 1 TAG 12", "give 32 hex digits, as SG.PUTIF returned them"),
            ("SG.PUTIF t:a 1 TAG zz", "give 32 hex digits"),
            (f"SG.PUTIF t:a 1 TAG {one}00", "give 32 hex digits"),
            ("SG.PUTIF t:a 1 ABSENT NX", "give one of EX, PX, EXAT and PXAT"),
            ("SG.PUTIF t:a 1 ABSENT EX 1 2", "give one of EX, PX, EXAT and PXAT"),
            ("SG.PUTIF t:a 1 ABSENT EX 0", "invalid expire time in 'sg.putif' command"),
        ):
            assert why in await client.say(words)
        client.talk.lose()

    run(story())


def test_what_a_connection_wishes_goes_with_each_ask_until_it_is_reset() -> None:
    async def story() -> None:
        client = Client()
        await client.say("GET t:a")
        assert await client.say("SG.DEADLINE 250") == b"OK"
        assert await client.say("SG.CRITICALITY best-effort") == b"OK"
        assert await client.say("SG.STRONG on") == b"OK"
        client.hand.advance(s=1)
        await client.say("SET t:a 1")
        assert await client.say("SG.DEADLINE 0") == b"OK"
        assert await client.say("SG.CRITICALITY default") == b"OK"
        assert await client.say("SG.STRONG OFF") == b"OK"
        await client.say("GET t:a")
        await client.say("SG.DEADLINE 1")
        await client.say("SG.STRONG on")
        await client.say("SG.CRITICALITY bulk")
        await client.say("RESET")
        await client.say("GET t:a")
        first, second, third, fourth = [one.call for one in client.service.calls]
        at_us = START_US + S
        assert (first.deadline_us, first.criticality, first.strong) == (None, None, False)
        assert first.arrived_us == START_US
        assert (second.arrived_us, second.deadline_us) == (at_us, at_us + 250_000)
        assert (second.criticality, second.strong) == (Criticality.BEST_EFFORT, True)
        for call in (third, fourth):
            assert (call.deadline_us, call.criticality, call.strong) == (None, None, False)
        for wrong in ("SG.DEADLINE -1", "SG.DEADLINE x", "SG.DEADLINE 99999999999999"):
            assert "give milliseconds from 0" in await client.say(wrong)
        assert "give one of CRITICAL" in await client.say("SG.CRITICALITY high")
        assert await client.say("SG.STRONG maybe") == "ERR syntax error"
        client.talk.lose()

    run(story())


def test_an_ask_is_of_who_spoke_when_it_was_said_and_as_they_wished_then() -> None:
    async def story() -> None:
        client = Client(late=True)
        commands: list[tuple[Part, ...]] = [
            ("SG.DEADLINE", 5),
            ("GETDEL", "t:a"),
            ("PERSIST", "t:b"),
            ("DEL", "t:c"),
            ("SET", "t:d", 1, "GET"),
            ("SET", "t:e", 1, "NX", "GET"),
            ("MSET", "t:f", 1, "u:f", 1),
            ("GETEX", "t:g", "EX", 1),
            ("SG.DEADLINE", 0),
            ("AUTH", "secret"),
        ]
        await client.talk.request(b"".join(command(*words) for words in commands))
        assert len(client.service.calls) >= 8
        for one in client.service.calls:
            assert (one.call.identity.name, one.call.deadline_us) == ("", START_US + 5_000)
        client.talk.lose()

    run(story())


def test_a_null_is_told_in_the_protocol_in_which_it_was_asked_for() -> None:
    async def story() -> None:
        client = Client(late=True)
        commands = [("GET", "t:a"), ("GETDEL", "t:a"), ("SET", "t:a", 1, "XX"), ("MGET", "t:a")]
        sent = b"".join(command(*words) for words in commands) + command("HELLO", 3)
        assert (await client.talk.request(sent)).startswith(b"$-1\r\n$-1\r\n$-1\r\n*1\r\n$-1\r\n%")
        assert await client.talk.request(command("GET", "t:a")) == b"_\r\n"
        client.talk.lose()

    run(story())


def test_what_reads_and_writes_is_one_call_and_no_read_before_a_write() -> None:
    async def story() -> None:
        client = Client()
        await client.say("SET t:a 1 EX 5")
        client.service.calls.clear()
        lines = ["SET t:a 2 GET", "PERSIST t:a", "GETEX t:a EX 5", "INCR t:a", "GETDEL t:a"]
        for line in lines:
            await client.say(line)
        assert [one.operation for one in client.service.calls] == ["update"] * len(lines)
        client.talk.lose()

    run(story())


def refused(reason: Reason, retry_after_us: int) -> Refused:
    return Refused(Decision(False, 0, retry_after_us, 0, reason, "r"))


@pytest.mark.parametrize("line", ["GET t:a", "SET t:a 1", "SCAN 0 MATCH t:*", "GETDEL t:a"])
def test_every_error_has_its_code(line: str) -> None:
    async def story() -> None:
        client = Client()
        for error, reply in (
            (refused(QUOTA_SPENT, 1_001), f"LIMITED {QUOTA_SPENT.sentence} retry_after_ms=2"),
            (refused(SHED, 0), f"BUSY {SHED.sentence}"),
            (refused(DEADLINE, -1), f"TOOLATE {DEADLINE.sentence}"),
            (Unavailable("LMDB", "no room"), "BUSY LMDB is unavailable: no room"),
            (Conflict("it", "so"), "CONFLICT it was changed by somebody else: so"),
            (BadValue("sort", "x", "give one"), "ERR sort: 'x' cannot be used; give one"),
            (RuntimeError("bug"), "ERR the service failed to answer; its log says why"),
        ):
            client.service.raise_next(error)
            assert await client.say(line) == reply
        client.talk.lose()

    run(story())


def test_who_may_only_write_learns_nothing_from_what_reads_too() -> None:
    async def story() -> None:
        client = Client()
        no_read = "NOPERM carl may not do this; it takes the grant 'read on users'"
        assert await client.say("SET users:1 5") == b"OK"
        await client.say("AUTH drop")
        reading = ("INCR users:1", "DECRBY users:1 2", "GETSET users:1 1", "GETDEL users:1")
        for line in (*reading, "SET users:1 1 GET", "EXPIRE users:1 9 GT", "WATCH users:1"):
            assert await client.say(line) == no_read, line
        await client.say("MULTI")
        await client.say("SET users:1 6")
        await client.say("INCR users:1")
        assert await client.say("EXEC") == no_read
        for line, reply in (("SETNX users:1 1", 0), ("EXPIRE users:1 9", 1), ("DEL users:1", 1)):
            assert await client.say(line) == reply
        client.talk.lose()

    run(story())


def test_what_is_queued_is_bounded_and_of_one_partition() -> None:
    async def story() -> None:
        client = Client()
        for wrong in ("SET t:q 1", "SET u:p 1", "MGET t:p:a t:q:a", "SCAN 0 MATCH t:*", "GET"):
            await client.say("MULTI")
            assert await client.say("SET t:p:a 1") == b"QUEUED"
            assert (await client.say(wrong)).startswith("ERR")
            assert (await client.say("EXEC")).startswith("EXECABORT")
        await client.say("MULTI")
        for _ in range(COMMANDS_MAX):
            assert await client.say("INCR t:p:a") == b"QUEUED"
        assert "queue at most 1,000" in await client.say("INCR t:p:a")
        assert (await client.say("EXEC")).startswith("EXECABORT")
        assert await client.say("EXISTS t:p:a") == 0
        for number in range(WATCHED_MAX):
            assert await client.say(f"WATCH t:p:{number}") == b"OK"
        assert "watch at most 100" in await client.say("WATCH t:p:a")
        await client.say("MULTI")
        assert await client.say("MULTI") == "ERR MULTI calls can not be nested"
        assert await client.say("WATCH t:p:a") == "ERR WATCH inside MULTI is not allowed"
        assert await client.say("EXEC") == []
        # The control: what is in order is carried out, and RESET forgets what was begun.
        await client.say("MULTI")
        assert await client.say("INCR t:p:a") == b"QUEUED"
        assert await client.say("EXEC") == [1]
        await client.say("MULTI")
        await client.say("RESET")
        assert await client.say("INCR t:p:a") == 2
        client.talk.lose()

    run(story())


def test_grants_are_those_of_who_speaks() -> None:
    async def story() -> None:
        client = Client()
        await client.say("AUTH look")
        assert await client.say("GET users:1") is None
        no_write = "NOPERM bob may not do this; it takes the grant 'write on users'"
        assert await client.say("SET users:1 x") == no_write
        assert await client.say("GETDEL users:1") == no_write
        assert await client.say("INCR users:1") == no_write
        assert await client.say("MULTI") == b"OK"
        assert await client.say("GET users:1") == b"QUEUED"
        assert await client.say("EXEC") == [None]  # that only reads
        await client.say("MULTI")
        await client.say("SETNX users:1 x")
        assert await client.say("EXEC") == no_write
        assert "'read on other'" in await client.say("MGET users:1 other:1")
        assert "'bulk on users'" in await client.say("SG.BULK LIST users")
        client.talk.lose()

    run(story())


def test_what_is_no_key_names_the_form() -> None:
    async def story() -> None:
        client = Client()
        for line in (
            "GET a",
            "SET a 1",
            "MGET t:a a",
            "DEL t:",
            "TTL :a",
            "SG.RANGE t",
            "GETDEL a",
        ):
            assert "write it table:partition or table:partition:sort" in await client.say(line)
        assert "use a-z, 0-9" in await client.say("GET Users:a")
        assert not client.service.calls
        client.talk.lose()

    run(story())


def test_what_is_not_offered_is_unknown() -> None:
    async def story() -> None:
        client = Client()
        for word in ("APPEND", "INCRBYFLOAT", "KEYS", "FLUSHALL", "CLUSTER", "CL.THROTTLE"):
            assert (await client.say((word, "t:a"))).startswith(f"ERR unknown command '{word}'")
        assert await client.say("CONFIG GET save") == [b"save", b""]
        assert await client.say("CONFIG GET appendonly x") == [b"appendonly", b"no"]
        assert "unknown subcommand" in await client.say("CONFIG SET save x")
        client.talk.lose()

    run(story())


def test_times_that_no_value_can_have_are_refused() -> None:
    async def story() -> None:
        client = Client()
        await client.say("SET t:a 1")
        most = (1 << 62) // S
        for line in (f"SET t:a 1 EX {most + 1}", f"EXPIRE t:a {most + 1}", "GETEX t:a PX 0"):
            assert "invalid expire time in" in await client.say(line)
        for words, bound in (
            (f"SET t:a 1 EX {most + 1}", most),
            (f"SET t:a 1 PXAT {most * 1_000 + 1_000}", (1 << 62) // 1_000),
            ("GETEX t:a EX 0", most),
            (f"GETEX t:a PX {10**20 - 1}", (1 << 62) // 1_000),
            ("SET t:a 1 EXAT soon", most),
        ):
            message = await client.say(words)
            assert f"give {words.split()[-2]} a whole number from 1 to {bound:,}" in message
        for words, bound in (
            (f"EXPIRE t:a {most + 1}", most),
            (f"PEXPIREAT t:a -{most * 1_000 + 1_000}", (1 << 62) // 1_000),
        ):
            message = await client.say(words)
            assert message.endswith(f"command: give a whole number up to {bound:,}")
        assert await client.say("GET t:a") == b"1"
        assert await client.say(f"SET t:a 1 EX {most}") == b"OK"
        assert await client.say(f"EXPIRE t:a {1 << 64}") == (
            "ERR value is not an integer or out of range"
        )
        assert await client.say(f"EXPIRE t:a {most - 1}") == 1
        assert await client.say("EXPIREAT t:a", START_US // S + 7) == 1
        assert await client.say("TTL t:a") == 7
        assert await client.say("EXPIREAT t:a", START_US // S) == 1
        assert await client.say("EXISTS t:a") == 0
        assert await client.say("EXPIRE t:a 1 SO") == "ERR Unsupported option SO"
        client.talk.lose()

    run(story())


def test_a_door_to_values_needs_a_clock() -> None:
    with pytest.raises(BadValue, match="clock"):
        RespDoor(MemoryKeyValues(), Everybody(), None, KEY_VALUES)


def test_the_table_tells_clients_where_keys_are() -> None:
    async def story() -> None:
        client = Client()
        reply = await client.say("COMMAND INFO get mset del scan sg.range ping sg.bulk")
        assert reply == [
            [b"get", 2, [b"readonly", b"fast"], 1, 1, 1],
            [b"mset", -3, [b"write"], 1, -1, 2],
            [b"del", -2, [b"write"], 1, -1, 1],
            [b"scan", -2, [b"readonly"], 0, 0, 0],
            [b"sg.range", -2, [b"readonly"], 1, 1, 1],
            [b"ping", -1, [], 0, 0, 0],
            [b"sg.bulk", -3, [b"write"], 0, 0, 0],
        ]
        client.talk.lose()

    run(story())


class Literal(MemoryKeyValues):
    """Counts what it is requested to remove, whatever is there."""

    async def remove(self, table: str, places: Sequence[Place], call: CallContext) -> int:
        return len(places)


def test_a_key_that_is_named_twice_is_deleted_once() -> None:
    async def story() -> None:
        service = Literal()
        talk = Talk(RespDoor(service, Everybody(), None, KEY_VALUES, service.clock))
        assert await talk.request(command("DEL", "t:a", "t:a:", "t:b", "u:a")) == b":3\r\n"
        talk.lose()

    run(story())


@pytest.mark.parametrize("late", [False, True])
def test_time_and_expiry_instants_are_absolute(late: bool) -> None:
    async def story() -> None:
        client = Client(late)
        client.hand.advance(us=7)
        at_us = client.hand.now_us()
        assert await client.say("TIME") == [b"%d" % (at_us // S), b"%d" % (at_us % S)]
        await client.say("SET t:a 1 PX 1500")
        assert await client.say("PEXPIRETIME t:a") == -(-(at_us + 1_500_000) // 1_000)
        assert await client.say("EXPIREAT t:a 4000000000") == 1
        client.hand.advance(s=5)
        assert await client.say("EXPIRETIME t:a") == 4_000_000_000
        await client.say("PERSIST t:a")
        assert await client.say("EXPIRETIME t:a") == -1
        assert await client.say("PEXPIRETIME t:b") == -2
        client.talk.lose()

    run(story())


def test_msetnx_writes_all_or_none_of_one_partition() -> None:
    async def story() -> None:
        client = Client()
        assert await client.say("MSETNX t:a:x 1 t:a:y 2") == 1
        assert await client.say("MSETNX t:a:z 3 t:a:y 4") == 0
        assert await client.say("MGET t:a:x t:a:y t:a:z") == [b"1", b"2", None]
        assert "one partition" in await client.say("MSETNX t:a 1 t:b 2")
        assert await client.say("EXISTS t:a t:b") == 0
        client.talk.lose()

    run(story())


def test_mset_and_del_of_5000_keys_run_in_batches() -> None:
    async def story() -> None:
        client = Client(late=True, parts_max=1 << 14)
        keys = [f"t:{number}" for number in range(4_000)] + [f"t:p:{n}" for n in range(1_000)]
        pairs = [word for key in keys for word in (key, "v")]
        assert await client.say(["MSET", *pairs, "t:0", "last"]) == b"OK"
        assert [one.operation for one in client.service.calls] == ["write"] * 6
        assert await client.say("GET t:0") == b"last"
        assert await client.say(["EXISTS", *keys]) == 5_000
        assert await client.say(["DEL", *keys, "t:0"]) == 5_000
        client.service.raise_next(Unavailable("the engine", "it is gone"))
        assert (await client.say(["MSET", *pairs])).startswith("BUSY")
        client.talk.lose()

    run(story())


def test_oversized_command_is_an_error_that_keeps_the_connection() -> None:
    async def story() -> None:
        client = Client(parts_max=64)
        pairs = ["t:a", "1"] * 40
        assert "64 parts at most" in await client.say(["MSET", *pairs])
        assert await client.say("SET t:a 2") == b"OK"
        assert await client.say("MULTI") == b"OK"
        assert "64 parts at most" in await client.say(["MSET", *pairs])
        assert (await client.say("EXEC")).startswith("EXECABORT")
        assert await client.say("GET t:a") == b"2"
        client.talk.lose()

    run(story())
