"""The commands that Redis has too, beside a real one: the same words, the same replies."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import hiredis
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sluicegate.system import SystemClock
from sluicegate.wire.resp import command
from tests.doors.resp.kv.door import kv_door
from tests.doors.resp.talk import Talk

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

KEYS = ["t:a", "t:b", "t:a:x", "t:a:x:y", "u:a"]
ROWS = ["t:a", "t:a:x", "t:a:y", "t:a:x:y"]  # of one partition
FAR_S = 4_000_000_000
ENDS_S = (100, 100_000)  # of rows that end some time from now
BEGUN_S = 60  # the two sides do not begin at the same instant
Words = tuple[str, ...]


SAME_WORDS = {
    "ERR increment or decrement would overflow",
    "ERR decrement would overflow",
    "ERR EXEC without MULTI",
    "ERR DISCARD without MULTI",
    "ERR GT and LT options at the same time are not compatible",
    "ERR NX and XX, GT or LT options at the same time are not compatible",
    "EXECABORT Transaction discarded because of previous errors.",
}


class Peer:
    """A connection to a real Redis."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        (about,) = self.request(command("INFO", "server"), 1)
        self.old = b"redis_version:6" in about  # see `is_newer`

    def request(self, data: bytes, count: int) -> list[Any]:
        self._socket.sendall(data)
        reader = hiredis.Reader()
        replies: list[Any] = []
        while len(replies) < count:
            reply = reader.gets()
            if reply is False:
                got = self._socket.recv(65_536)
                assert got
                reader.feed(got)
            else:
                replies.append(reply)
        return replies

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def peer(redis_any: RedisServer) -> Iterator[Peer]:
    connection = Peer(redis_any.port)
    yield connection
    connection.close()


key = st.sampled_from(KEYS)
row = st.sampled_from(ROWS)
value = st.sampled_from(
    [
        "",
        "1",
        "two",
        "x" * 100,
        "\r\n$5",
        "-7",
        "01",
        "+1",
        " 1",
        "9223372036854775807",
        "-0",
        "1.5",
    ]
)
amount = st.sampled_from(
    ["1", "-3", "x", "9223372036854775807", "-9223372036854775808", "01", "+2"]
)
condition = st.sampled_from(
    [
        (),
        ("NX",),
        ("xx",),
        ("GT",),
        ("LT",),
        ("XX", "GT"),
        ("NX", "GT"),
        ("GT", "LT"),
        ("FOO",),
        ("LT", "LT"),
    ]
)
anyway = st.sampled_from
time_option = anyway(
    [
        ("EX", "100"),
        ("px", "100000"),
        ("EXAT", str(FAR_S)),
        ("PXAT", str(FAR_S * 1000)),
        ("EXAT", "1"),
        ("PXAT", "1"),
        ("KEEPTTL",),
    ]
)
wrong_time = anyway([("EX", "0"), ("EX", "-1"), ("PX", "x"), ("EX", "01"), ("PXAT", "+5")])
wrong_option = wrong_time | anyway([("EX",), ("NX", "XX"), ("FOO",)])
# A time from now is not the same twice: whether one is later than another is each side's own.
unstrict = anyway([(), ("NX",), ("XX",), ("FOO",), ("NX", "XX")])
option = anyway([("NX",), ("xx",), ("GET",)]) | time_option | wrong_option


def flat(words: Any) -> Words:
    out: list[str] = []
    for word in words:
        out += flat(word) if isinstance(word, (tuple, list)) else [word]
    return tuple(out)


def is_newer(words: Words) -> bool:
    """What Redis before 7 does not know (conditions of EXPIRE), or answers otherwise."""
    conditional = "EXPIRE" in words[0].upper() and len(words) > 3
    return (
        conditional
        or words[0].upper().endswith("EXPIRETIME")
        or words[0] == "WATCH"
        or words[-1] == str(-(1 << 63))
    )


def old_and_absent(words: Words) -> bool:
    """SET with NX and GET, which Redis before 7 refuses."""
    upper = {word.upper() for word in words[3:]}
    return words[0].upper() == "SET" and {"NX", "GET"} <= upper


plain = st.one_of(
    st.tuples(anyway(["GET", "get", "STRLEN", "TYPE", "TTL", "PERSIST", "GETDEL"]), key),
    st.tuples(anyway(["MGET", "EXISTS", "DEL", "UNLINK"]), st.lists(key, min_size=1, max_size=4)),
    st.tuples(st.just("SET"), key, value),
    st.tuples(st.just("SET"), key, value, st.lists(option, max_size=2)),
    st.tuples(st.just("MSET"), st.lists(st.tuples(key, value), min_size=1, max_size=4)),
    st.tuples(st.just("MSETNX"), st.lists(st.tuples(row, value), min_size=1, max_size=4)),
    st.tuples(anyway(["EXPIRETIME", "PEXPIRETIME"]), key),
    st.tuples(st.just("EXPIRE"), key, anyway(["100", "0", "-1", "x", "01"]), unstrict),
    st.tuples(st.just("PEXPIRE"), key, anyway(["100000", "0", "-5"]), unstrict),
    st.tuples(st.just("EXPIREAT"), key, anyway([str(FAR_S), str(FAR_S + 9), "1", "-1"]), condition),
    st.tuples(st.just("PEXPIREAT"), key, anyway([str(FAR_S * 1000), "1"]), condition),
    st.tuples(anyway(["INCR", "decr"]), key),
    st.tuples(anyway(["INCRBY", "DECRBY"]), key, amount),
    st.tuples(anyway(["GETSET", "SETNX"]), key, value),
    st.tuples(anyway(["SETEX", "PSETEX"]), key, anyway(["100000", "0", "-1", "x", "+5"]), value),
    st.tuples(st.just("GETEX"), key, anyway([(), ("EX", "100"), ("PERSIST",), ("FOO",)])),
    anyway(
        [
            ("EXEC",),
            ("DISCARD",),
            ("INCR",),
            ("SETEX", "t:a", "1"),
            ("SET", "t:a"),
            ("GET",),
            ("MSET", "t:a"),
            ("MSET", "t:a", "1", "t:b"),
            ("MSETNX", "t:a", "1", "t:a"),
            ("EXPIRETIME",),
            ("TIME", "t:a"),
            ("INCRFOO", "t:a"),
            ("SCAN", "x", "MATCH", "t:*"),
            ("SCAN", "0", "MATCH", "t:*", "COUNT", "0"),
            ("SCAN", "0", "MATCH", "t:*", "COUNT", "x"),
            ("SCAN", "0", "FOO", "t:*"),
            ("SCAN", "0", "MATCH"),
            ("PING",),
            ("ECHO", "a"),
        ]
    ),
)
commands = st.lists(plain.map(flat).filter(lambda words: not old_and_absent(words)), max_size=25)


def comparable(reply: Any) -> Any:
    """Errors are one, but for the words that clients look for; the others are each side's own.

    So are the instants at which rows end, as each side has begun at another one.
    """
    if isinstance(reply, list):
        return [comparable(one) for one in reply]
    if isinstance(reply, int):
        return instant(reply) or reply
    if not isinstance(reply, hiredis.ReplyError):
        return reply
    return str(reply) if str(reply) in SAME_WORDS else "an error"


def instant(number: int) -> str:
    """Its unit, and the time of `ENDS_S` that is left until then; empty if it is no instant."""
    for unit, times in (("s", 1), ("ms", 1_000)):
        left_s = number / times - time.time()
        for ends_s in ENDS_S:
            if -BEGUN_S <= left_s - ends_s <= BEGUN_S:
                return f"in {ends_s} s, in {unit}"
    return ""


async def ours(sent: bytes, cuts: list[int], late: bool) -> list[Any]:
    _, door = kv_door(late, SystemClock())
    talk = Talk(door)
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        talk.protocol.data_received(sent[start:end])
        if start % 2:
            await asyncio.sleep(0)
    protocol = talk.protocol
    while protocol.under_way() or protocol._blocked_command is not None or protocol._share.waiting:
        await asyncio.sleep(0)
    talk.lose()
    reader = hiredis.Reader()
    reader.feed(talk.wire.output)
    replies = []
    while (reply := reader.gets()) is not False:
        replies.append(reply)
    return replies


calm = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@calm
@given(commands, st.sampled_from([2, 3]), st.booleans(), st.data())
def test_whatever_is_said_the_replies_are_those_of_redis(
    peer: Peer, command_list: list[Words], protocol: int, late: bool, data: st.DataObject
) -> None:
    peer.request(command("RESET") + command("FLUSHALL") + command("HELLO", protocol), 3)
    if peer.old:
        command_list = [words for words in command_list if not is_newer(words)]
    sent = b"".join(command(*words) for words in command_list)
    reply = peer.request(sent, len(command_list))
    greeting = command("HELLO", protocol)
    sent = greeting + sent
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=4)))
    got = asyncio.run(ours(sent, cuts, late))[1:]
    assert [comparable(one) for one in got] == [comparable(one) for one in reply]


in_one_partition = st.one_of(
    st.tuples(anyway(["GET", "STRLEN", "TYPE", "TTL", "PERSIST", "GETDEL", "INCR", "DECR"]), row),
    st.tuples(anyway(["MGET", "EXISTS", "DEL", "UNLINK"]), st.lists(row, min_size=1, max_size=4)),
    st.tuples(st.just("SET"), row, value, st.lists(option, max_size=2)),
    st.tuples(anyway(["MSET", "MSETNX"]), st.lists(st.tuples(row, value), min_size=1, max_size=4)),
    st.tuples(anyway(["EXPIRETIME", "PEXPIRETIME"]), row),
    st.tuples(st.just("EXPIREAT"), row, anyway([str(FAR_S), str(FAR_S + 9), "1"]), condition),
    st.tuples(anyway(["INCRBY", "DECRBY"]), row, amount),
    st.tuples(anyway(["GETSET", "SETNX"]), row, value),
    st.tuples(anyway(["SETEX", "PSETEX"]), row, anyway(["100000", "0"]), value),
    st.tuples(st.just("GETEX"), row, anyway([(), ("EX", "100"), ("PERSIST",), ("FOO",)])),
    st.tuples(st.just("WATCH"), st.lists(row, min_size=1, max_size=2)),
    anyway([("MULTI",), ("EXEC",), ("EXEC",), ("DISCARD",), ("GET",), ("NOTHING", "t:a")]),
)


def unnested(words_list: list[Words]) -> list[Words]:
    """Without MULTI and WATCH inside MULTI: what they leave behind differs by the server."""
    kept = []
    inside = False
    for words in words_list:
        if inside and words[0] in ("MULTI", "WATCH"):
            continue
        inside = words[0] == "MULTI" or (inside and words[0] not in ("EXEC", "DISCARD"))
        kept.append(words)
    return kept


READING = ("GET", "STRLEN", "TYPE", "TTL", "MGET", "EXISTS", "EXPIRETIME", "PEXPIRETIME")


def never_changed_back(words_list: list[Words]) -> list[Words]:
    """With a new value for each change of what may be watched, before MULTI.

    To Redis a row that is as it was has changed if it was written; here it has not.
    """
    kept: list[Words] = []
    watching = inside = False
    for words in words_list:
        name = words[0].upper()
        changes = len(words) > 1 and name not in (*READING, "WATCH")
        mistakable = watching and not inside and changes
        kept.append(("SET", words[1], f"changed {len(kept)}") if mistakable else words)
        watching = (watching or name == "WATCH") and not (inside and name in ("EXEC", "DISCARD"))
        inside = name == "MULTI" or (inside and name not in ("EXEC", "DISCARD"))
    return kept


@calm
@given(
    st.lists(
        in_one_partition.map(flat).filter(lambda words: not old_and_absent(words)), max_size=40
    ),
    st.sampled_from([2, 3]),
    st.booleans(),
)
@example([("MULTI",), ("SET", "t:a", "", "EXAT", "1"), ("GET", "t:a")], 2, False)
@example([("MULTI",), ("GETEX", "t:a", "PERSIST", "EX", "1"), ("SET", "t:a", "")], 2, False)
@example(
    [
        ("SET", "t:a", ""),
        ("EXPIREAT", "t:a", str(FAR_S)),
        ("EXPIREAT", "t:a", str(FAR_S), "LT"),
    ],
    2,
    False,
)
@example([("WATCH", "t:a"), ("SET", "t:a", ""), ("DEL", "t:a"), ("MULTI",)], 2, False)
@example([("WATCH", "t:a"), ("MULTI",), ("SET", "t:a", ""), ("DEL", "t:a")], 2, False)
def test_transactions_of_one_partition_are_those_of_redis(
    peer: Peer, command_list: list[Words], protocol: int, late: bool
) -> None:
    peer.request(command("RESET") + command("FLUSHALL") + command("HELLO", protocol), 3)
    # Each ends, whatever was begun.
    command_list = never_changed_back([*unnested(command_list), ("EXEC",)])
    command_list += [("UNWATCH",), ("MGET", *ROWS)]
    if peer.old:
        command_list = [words for words in command_list if not is_newer(words)]
    sent = b"".join(command(*words) for words in command_list)
    reply = peer.request(sent, len(command_list))
    greeting = command("HELLO", protocol)
    got = asyncio.run(ours(greeting + sent, [len(greeting)], late))[1:]
    assert [comparable(one) for one in got] == [comparable(one) for one in reply]


GLOBS = [
    "*",
    "a*",
    "*a",
    "?",
    "[ab]*",
    "[^a]",
    "a:*",
    "a:x",
    "*:*",
    "",
    "[a-",
    "[a-]",
    "\\a",
    "a?x*",
]


@calm
@given(st.sets(st.sampled_from(KEYS)), st.sampled_from(GLOBS), st.integers(1, 5))
def test_a_scan_finds_what_redis_finds(peer: Peer, keys: set[str], glob: str, count: int) -> None:
    peer.request(command("FLUSHALL") + command("HELLO", 2), 2)
    for one in keys:
        peer.request(command("SET", one, 1), 1)

    def scanned(request: Any) -> list[bytes]:
        cursor, names = b"0", []
        while True:
            cursor, page = request(command("SCAN", cursor, "MATCH", f"t:{glob}", "COUNT", count))
            names += page
            if cursor == b"0":
                return sorted(set(names))

    async def story() -> list[bytes]:
        _, door = kv_door(clock=SystemClock())
        talk = Talk(door)
        for one in keys:
            await talk.request(command("SET", one, 1))
        cursor, names = b"0", []
        while True:
            reader = hiredis.Reader()
            words = ("SCAN", cursor, "MATCH", f"t:{glob}", "COUNT", count)
            reader.feed(await talk.request(command(*words)))
            cursor, page = reader.gets()
            names += page
            if cursor == b"0":
                talk.lose()
                assert len(names) == len(set(names))
                return sorted(names)

    assert asyncio.run(story()) == scanned(lambda data: peer.request(data, 1)[0])


def test_the_time_left_is_told_as_redis_tells_it(peer: Peer) -> None:
    command_list = [
        ("SET", "t:a", 1, "PX", 100_700),
        ("SET", "t:b", 1),
        ("PTTL", "t:a"),
        ("TTL", "t:a"),
        ("PTTL", "t:b"),
        ("PTTL", "t:c"),
    ]
    sent = b"".join(command(*words) for words in command_list)
    peer.request(command("FLUSHALL"), 1)
    theirs, mine = peer.request(sent, len(command_list)), asyncio.run(ours(sent, [], True))
    assert 0 < theirs[2] - mine[2] + 10_000 < 20_000
    assert 90_000 < mine[2] <= 100_700
    assert mine[3:] == theirs[3:] == [101, -1, -2]


def test_every_two_options_of_set_are_understood_as_redis_does(peer: Peer) -> None:
    options = [
        ("NX",), ("XX",), ("GET",), ("KEEPTTL",), ("EX", "100"), ("PX", "100000"),
        ("EXAT", str(FAR_S)), ("PXAT", str(FAR_S * 1000)), ("FOO",), ("EX", "0"),
    ]  # fmt: skip
    command_list: list[Words] = []
    for first in options:
        for second in options:
            for before in (("DEL", "t:a"), ("SET", "t:a", "old", "EX", "50")):
                words = ("SET", "t:a", "new", *first, *second)
                if not old_and_absent(words):
                    command_list += [before, words, ("GET", "t:a"), ("TTL", "t:a")]
    sent = b"".join(command(*words) for words in command_list)
    peer.request(command("FLUSHALL"), 1)
    theirs, mine = peer.request(sent, len(command_list)), asyncio.run(ours(sent, [], True))
    far = range(1_000_000, FAR_S)  # of the instants, a second may have passed between

    def alike(reply: Any) -> Any:
        return "far" if isinstance(reply, int) and reply in far else comparable(reply)

    reply = zip(command_list, mine, theirs, strict=True)
    assert [one for one in reply if alike(one[1]) != alike(one[2])] == []
