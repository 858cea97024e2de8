"""Many rows: SG.RANGE, SCAN with its patterns and cursors, and SG.BULK."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.resp.kv.bulk import spans
from sluicegate.doors.resp.kv.cursors import Cursors
from sluicegate.doors.resp.kv.scan import PATTERN_BYTES_MAX, matches, pieces_of
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.resp import Part, command
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.doors.resp.kv.door import Client
from tests.stores.redis.live import run


async def filled(**reply: Any) -> Client:
    client = Client(**reply)
    for sort in ("", "a", "b%25", "c:d", "e"):
        assert await client.say(("SET", f"t:p:{sort}", f"v{sort}")) == b"OK"
    assert await client.say("SET t:q:a other") == b"OK"
    return client


def sorts(reply: Any) -> list[bytes]:
    return [row[0] for row in reply[0]]


def test_rows_come_in_order_from_either_side_with_their_time() -> None:
    async def story() -> None:
        client = await filled()
        await client.say("EXPIRE t:p:a 10")
        rows, token = await client.say("SG.RANGE t:p")
        assert rows == [
            [b"", b"v", -1],
            [b"a", b"va", 10_000],
            [b"b%25", b"vb%25", -1],
            [b"c:d", b"vc:d", -1],
            [b"e", b"ve", -1],
        ]
        assert token == b""
        for line, reply in (
            ("SG.RANGE t:p a", [b"a", b"b%25", b"c:d", b"e"]),
            ("SG.RANGE t:p a c", [b"a", b"b%25"]),
            ("SG.RANGE t:p b%25 e", [b"b%25", b"c:d"]),
            ("SG.RANGE t:p a e rev", [b"c:d", b"b%25", b"a"]),
            ("SG.RANGE t:p REV LIMIT 2", [b"e", b"c:d"]),
            ("SG.RANGE t:p LIMIT 1", [b""]),
            ("SG.RANGE t:p BYTES 1", [b"", b"a"][:1]),
            ("SG.RANGE t:p %52EV", [b"a", b"b%25", b"c:d", b"e"]),
            ("SG.RANGE t:none", []),
        ):
            assert sorts(await client.say(line)) == reply, line
        assert sorts(await client.say(("SG.RANGE", "t:p", "", "b"))) == [b"", b"a"]
        assert sorts(await client.say(("SG.RANGE", "t:p", "b", ""))) == [b"b%25", b"c:d", b"e"]
        client.talk.lose()

    run(story())


@pytest.mark.parametrize("reverse", ["", "REV"])
def test_a_token_goes_on_and_the_last_one_is_empty(reverse: str) -> None:
    async def story() -> None:
        client = await filled()
        await client.say("HELLO 3")
        keys: list[bytes] = []
        token = b""
        while True:
            words: list[Part] = ["SG.RANGE", "t:p", *reverse.split(), "LIMIT", 2]
            reply = await client.say([*words, "TOKEN", token] if token else words)
            keys += [row[0] for row in reply[b"rows"]]
            token = reply[b"token"]
            assert re.fullmatch(rb"[0-9a-f]*", token)
            if not token:
                break
        whole = [b"", b"a", b"b%25", b"c:d", b"e"]
        assert keys == (whole[::-1] if reverse else whole)
        client.talk.lose()

    run(story())


def test_a_range_that_is_none_says_what_would_be() -> None:
    async def story() -> None:
        client = await filled()
        for line, why in (
            ("SG.RANGE t:p:a", "sort keys come behind it"),
            ("SG.RANGE t:p a b c", "give REV, LIMIT n, BYTES n or TOKEN t"),
            ("SG.RANGE t:p LIMIT", "give REV, LIMIT n, BYTES n or TOKEN t"),
            ("SG.RANGE t:p LIMIT 0", "give a whole number from 1 on"),
            ("SG.RANGE t:p BYTES x", "give a whole number from 1 on"),
            ("SG.RANGE t:p TOKEN xyz", "give the token of the reply before"),
            ("SG.RANGE t:p TOKEN 00", "go on with the partition and span"),
            ("SG.RANGE t:p %zz", "write % as %25"),
        ):
            assert why in await client.say(line), line
        client.talk.lose()

    run(story())


async def scanned(client: Client, count: int, pattern: str = "t:*") -> list[bytes]:
    cursor, keys = b"0", []
    while True:
        reply = await client.say(
            ("SCAN", cursor, "MATCH", pattern, "COUNT", count, "TYPE", "string")
        )
        cursor, page = reply
        assert len(page) <= count
        keys += page
        if cursor == b"0":
            return keys


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_scan_tells_every_key_once_as_it_is_written(count: int) -> None:
    async def story() -> None:
        client = await filled()
        await client.say("SET t:p%3Aq:%25%41 1")
        await client.say("SET u:p 1")
        keys = [b"t:p", b"t:p%3Aq:%25A", b"t:p:a", b"t:p:b%25", b"t:p:c:d", b"t:p:e", b"t:q:a"]
        scan_keys = await scanned(client, count)
        assert sorted(scan_keys) == keys
        assert await client.say(("MGET", *scan_keys)) == [
            await client.say(("GET", key)) for key in scan_keys
        ]
        assert sorted(await scanned(client, count, "t:p:?")) == [b"t:p:a", b"t:p:e"]
        assert await scanned(client, count, "u:*") == [b"u:p"]
        assert await client.say("SCAN 0 MATCH t:* TYPE list COUNT 1000") == [b"0", []]
        client.talk.lose()

    run(story())


def test_a_scan_without_a_table_or_with_a_cursor_of_another_says_what_to_do() -> None:
    async def story() -> None:
        client = await filled()
        for line in (
            "SCAN 0",
            "SCAN 0 MATCH *",
            "SCAN 0 MATCH :*",
            "SCAN 0 MATCH t*:a",
            "SCAN 0 MATCH t?:a",
            "SCAN 0 MATCH t[u]:a",
            "SCAN 0 MATCH t\\:a",
            "SCAN 0 COUNT 5",
        ):
            assert "begins with a table's name: table:*" in await client.say(line)
        cursor, _ = await client.say("SCAN 0 MATCH t:* COUNT 1")
        unknown = "begin again at 0"
        assert unknown in await client.say(("SCAN", cursor, "MATCH", "u:*"))
        assert unknown in await client.say("SCAN 77 MATCH t:*")
        other = client.another()
        again = await other.say(("SCAN", cursor, "MATCH", "t:*", "COUNT", 1))
        assert again[0] != cursor
        await other.say("AUTH secret")
        assert unknown in await other.say(("SCAN", again[0], "MATCH", "users:*"))
        assert await client.say("SCAN -1 MATCH t:*") == "ERR invalid cursor"
        assert await client.say(f"SCAN {1 << 63} MATCH t:*") == "ERR invalid cursor"
        client.talk.lose()
        other.talk.lose()

    run(story())


def test_a_scan_whose_options_are_none_says_so_in_redis_own_words() -> None:
    async def story() -> None:
        client = await filled()
        for line, reply in (
            ("SCAN 0 MATCH", "ERR syntax error"),
            ("SCAN 0 MATCH t:* COUNT", "ERR syntax error"),
            ("SCAN 0 MATCH t:* COUNT 0", "ERR syntax error"),
            ("SCAN 0 MATCH t:* FOO 1", "ERR syntax error"),
            ("SCAN 0 MATCH t:* COUNT x", "ERR value is not an integer or out of range"),
            ("SCAN x MATCH t:*", "ERR invalid cursor"),
        ):
            assert await client.say(line) == reply, line
        client.talk.lose()

    run(story())


def test_a_cursor_belongs_to_who_got_it_and_leads_away_from_the_one_before() -> None:
    async def story() -> None:
        ann = Client(cursors_max=3)
        again, nobody = ann.another(), ann.another()
        for client in (ann, again):
            await client.say("AUTH secret")
        for name in "abcd":
            await ann.say(("SET", f"users:{name}", "1"))
        scan = ("MATCH", "users:*", "COUNT", 1)
        first, _ = await ann.say(("SCAN", 0, *scan))
        assert "begin again at 0" in await nobody.say(("SCAN", first, *scan))
        second, _ = await again.say(("SCAN", first, *scan))
        assert (await ann.say(("SCAN", second, *scan)))[0] != b"0"
        assert "begin again at 0" in await ann.say(("SCAN", first, *scan))
        # Three of them are hers, on however many connections she has.
        for client in (again, ann):
            await client.say(("SCAN", 0, *scan))
        assert "begin again at 0" in await ann.say(("SCAN", second, *scan))
        for client in (ann, again, nobody):
            client.talk.lose()

    run(story())


def test_count_is_bounded_by_its_setting() -> None:
    async def story() -> None:
        client = await filled(scan_count_max=2)
        _, page = await client.say("SCAN 0 MATCH t:* COUNT 1000")
        assert len(page) == 2
        client.talk.lose()

    run(story())


def test_a_scan_of_any_length_holds_two_cursors_and_a_lost_reply_can_be_had_again() -> None:
    cursors = Cursors(RespSettings(cursors_max=4))
    slow = cursors.put("ann", "t", (b"slow", b""), 0)
    at = 0
    for number in range(100):
        following = cursors.put("ann", "t", (b"%d" % number, b""), at)
        assert cursors.find("ann", "t", following) == (b"%d" % number, b"")
        assert cursors.find("ann", "t", following) == (b"%d" % number, b"")
        if at:
            with pytest.raises(BadValue, match="begin again at 0"):
                cursors.find("ann", "t", at)
        at = following
    assert cursors.find("ann", "t", slow) == (b"slow", b"")
    for name in ("ben", "carl"):
        with pytest.raises(BadValue):
            cursors.find(name, "t", slow)


def test_cursors_and_callers_are_bounded_and_the_oldest_go_first() -> None:
    cursors = Cursors(RespSettings(cursors_max=2, scanners_max=2))
    place = (b"p", b"")
    first, second, third = (cursors.put("ann", "t", place, 0) for _ in range(3))
    with pytest.raises(BadValue):
        cursors.find("ann", "t", first)
    assert cursors.find("ann", "t", second) == cursors.find("ann", "t", third) == place
    his = cursors.put("ben", "t", place, 0)
    hers = cursors.put("ann", "t", place, 0)
    cursors.put("carl", "t", place, 0)  # ben scanned longer ago than ann
    with pytest.raises(BadValue):
        cursors.find("ben", "t", his)
    assert cursors.find("ann", "t", hers) == place


def test_callers_without_a_name_are_counted_by_connection_and_push_out_nobody_with_one() -> None:
    cursors = Cursors(RespSettings(cursors_max=2, scanners_max=2))
    place = (b"p", b"")
    named = cursors.put("ann", "t", place, 0)
    mine = cursors.put("", "t", place, 0, 7)
    greedy = [cursors.put("", "t", place, 0, 8) for _ in range(3)]
    assert cursors.find("", "t", mine) == cursors.find("", "t", greedy[-1]) == place
    with pytest.raises(BadValue):
        cursors.find("", "t", greedy[0])
    with pytest.raises(BadValue):
        cursors.find("ann", "t", mine)
    assert cursors.find("", "t", cursors.put("", "t", place, mine, 9)) == place
    with pytest.raises(BadValue):  # connection 7 scanned longest ago
        cursors.find("", "t", mine)
    for connection in range(10, 20):
        cursors.put("", "t", place, 0, connection)
    assert cursors.find("ann", "t", named) == place
    assert len(cursors._connection_of) == 2


def test_a_cursor_before_is_forgotten_on_whichever_connection_it_was_got() -> None:
    cursors = Cursors(RespSettings(cursors_max=4))
    first = cursors.put("", "t", (b"1", b""), 0, 1)
    second = cursors.put("", "t", (b"2", b""), first, 2)
    assert cursors.find("", "t", first) == (b"1", b"")
    assert cursors.find("", "t", second) == (b"2", b"")
    with pytest.raises(BadValue):
        cursors.find("", "t", first)
    assert list(cursors._connection_of) == [second]


def test_one_anonymous_connection_leaves_the_scans_of_another_alone() -> None:
    async def story() -> None:
        client = await filled(cursors_max=2)
        other = client.another()
        cursor, _ = await client.say("SCAN 0 MATCH t:* COUNT 1")
        for _ in range(10):
            await other.say("SCAN 0 MATCH t:* COUNT 1")
        _, page = await client.say(("SCAN", cursor, "MATCH", "t:*", "COUNT", 100))
        assert len(page) == 5
        client.talk.lose()
        other.talk.lose()

    run(story())


def matched(glob: bytes, text: bytes) -> bool:
    return matches(pieces_of(glob), text)


def regex_of(glob: bytes) -> bytes:
    """The obvious way, for patterns of stars, marks and plain letters."""
    marks = {b"*": b".*", b"?": b"."}
    return b"".join(
        marks.get(glob[at : at + 1]) or re.escape(glob[at : at + 1]) for at in range(len(glob))
    )


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from([b"*", b"?", b"a", b"b", b":"]), max_size=8).map(b"".join),
    st.lists(st.sampled_from([b"a", b"b", b":", b"\n"]), max_size=10).map(b"".join),
)
def test_a_pattern_matches_what_its_expression_matches(glob: bytes, text: bytes) -> None:
    assert matched(glob, text) is bool(re.fullmatch(regex_of(glob), text, re.DOTALL))


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        (b"[a-c]x", [b"ax", b"cx"], [b"dx", b"x", b"a"]),
        (b"[c-a]", [b"b"], [b"d"]),
        (b"[^a]", [b"b"], [b"a", b""]),
        (b"[\\]a]", [b"]", b"a"], [b"\\"]),
        (b"\\*", [b"*"], [b"a"]),
        (b"[a", [b"a"], [b"b"]),
        (b"a[", [], [b"a", b"a["]),
        (b"[a-]", [b"a", b"_"], [b"-"]),
        (b"[a-", [b"a", b"-"], [b"b"]),
        (b"[a-c-e]", [b"b", b"-", b"e"], [b"d"]),
        (b"[\\", [b"\\"], [b"["]),
        (b"\\", [b"\\"], [b"a"]),
    ],
)
def test_classes_and_backslashes(glob: bytes, yes: list[bytes], no: list[bytes]) -> None:
    assert [matched(glob, text) for text in yes] == [True] * len(yes)
    assert [matched(glob, text) for text in no] == [False] * len(no)


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matched(b"*a" * 200 + b"b", b"a" * 2_000)


def test_a_pattern_is_taken_apart_once_and_stars_in_a_row_are_one() -> None:
    assert pieces_of(b"***a**[b-d]?") == [None, b"a", None, b"bcd", bytes(range(256))]
    assert len(pieces_of(b"*" * PATTERN_BYTES_MAX)) == 1
    assert pieces_of(b"[aaa]") == pieces_of(b"[a-a]") == pieces_of(b"\\a") == [b"a"]
    assert pieces_of(b"[" + b"a" * 4_000) == [b"a"]  # and not looked through at each byte of a key


def test_a_pattern_longer_than_the_most_is_refused() -> None:
    async def story() -> None:
        client = await filled()
        longest = "t:" + "*" * (PATTERN_BYTES_MAX - 2)
        page = await client.say(("SCAN", "0", "MATCH", longest))
        assert len(page[1]) == 6
        reply = await client.say(("SCAN", "0", "MATCH", longest + "*"))
        assert reply.startswith(
            "ERR MATCH: '4,097 bytes' cannot be used; give a pattern of at most"
        )
        client.talk.lose()

    run(story())


def test_others_have_their_turn_while_a_long_pattern_is_matched() -> None:
    async def story() -> None:
        client = Client()
        for number in range(20):
            await client.say(("SET", f"t:{number}", "1"))
        turns = []
        for pattern in ("t:*", "t:*" + "?" * 4_000):
            requested = command("SCAN", "0", "MATCH", pattern, "COUNT", "100")
            client.talk.protocol.data_received(requested)
            turns.append(0)
            while client.talk.protocol.under_way():
                await asyncio.sleep(0)
                turns[-1] += 1
        plain, slow = turns
        # 20 keys of 3 or 4 bytes, of 4,001 pieces each: one turn for every four or encode_throttle.
        assert 3 <= slow - plain <= 8
        client.talk.lose()

    run(story())


def fields(reply: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def part(*names: str) -> bytes:
    return stream_of([StreamRow(name.encode(), b"", b"bulk") for name in names])


def digest(*pieces: bytes) -> str:
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def test_an_upload_is_visible_when_it_is_integer() -> None:
    async def story() -> None:
        client = Client()
        await client.say("SET t:old 1")
        begun = fields(await client.say("SG.BULK BEGIN t night replace"))
        assert (begun["state"], begun["mode"], begun["parts"]) == (b"open", b"replace", b"")
        pieces = [part("a", "b"), part("c"), part("d")]
        for number in (0, 2):
            words = ("SG.BULK", "PART", "t", "night", number, digest(pieces[number]))
            reply = fields(await client.say(words, pieces[number]))
        assert (reply["parts"], reply["rows"]) == (b"0,2", 3)
        assert reply["bytes"] == len(pieces[0]) + len(pieces[2])
        whole = bytes.fromhex("".join(digest(piece) for piece in pieces))
        commit = ("SG.BULK", "COMMIT", "t", "night", 3, 4, digest(whole))
        assert (await client.say(commit)).startswith("CONFLICT the upload night")
        wrong = await client.say(("SG.BULK", "PART", "t", "night", 1, digest(b"")), pieces[1])
        assert "it is not that of the rows" in wrong
        assert await client.say("GET t:a") is None
        await client.say(("SG.BULK", "PART", "t", "night", 1, digest(pieces[1])), pieces[1])
        assert fields(await client.say("SG.BULK SHOW t night"))["parts"] == b"0-2"
        await client.say("HELLO 3")
        done = await client.say(commit)
        assert (done[b"state"], done[b"rows"]) == (b"done", 4)
        assert await client.say("MGET t:a t:b t:c t:d t:old") == [b"bulk"] * 4 + [None]
        assert [one[b"name"] for one in await client.say("SG.BULK LIST t")] == [b"night"]
        await client.say("SG.BULK BEGIN t other")
        abandoned = await client.say("SG.BULK ABANDON t other")
        assert (abandoned[b"mode"], abandoned[b"state"]) == (b"merge", b"abandoned")
        client.talk.lose()

    run(story())


@pytest.mark.parametrize("protocol", [2, 3])
def test_an_upload_is_told_whole_whoever_asks(protocol: int) -> None:
    async def story() -> None:
        client = Client()
        await client.say(f"HELLO {protocol} AUTH default secret")
        at_us = client.clock.now_us()
        rows = part("a", "b")
        words: tuple[Part, ...] = ("sg.bulk", "part", "users", "Night", 0, digest(rows), rows)
        begun = await client.say("sg.bulk begin users Night MERGE")
        client.hand.advance(us=7)
        await client.say(words)
        expected = {
            "table": b"users",
            "name": b"Night",
            "mode": b"merge",
            "state": b"open",
            "parts": b"0",
            "rows": 2,
            "bytes": len(rows),
            "begun_us": at_us,
            "by": b"ann",
        }

        def plain(reply: Any) -> dict[str, Any]:
            if protocol == 3:
                return {name.decode(): value for name, value in reply.items()}
            return fields(reply)

        assert plain(begun) == {**expected, "parts": b"", "rows": 0, "bytes": 0}
        assert plain(await client.say("sg.bulk show users Night")) == expected
        assert [plain(one) for one in await client.say("sg.bulk list users")] == [expected]
        client.talk.lose()

    run(story())


@pytest.mark.parametrize(
    ("least", "most"),
    [
        ("BEGIN t n", "BEGIN t n merge"),
        ("PART t n 0 12 rows", "PART t n 0 12 rows"),
        ("COMMIT t n 1 1 12", "COMMIT t n 1 1 12"),
        ("ABANDON t n", "ABANDON t n"),
        ("SHOW t n", "SHOW t n"),
        ("LIST t", "LIST t"),
    ],
)
def test_each_step_of_an_upload_takes_its_words_and_no_others(least: str, most: str) -> None:
    async def story() -> None:
        client = Client()
        name = least.partition(" ")[0].lower()
        wrong = "ERR wrong number of arguments for"
        few = await client.say(("SG.BULK", *least.split()[:-1]))
        assert few.startswith(f"{wrong} 'sg.bulk{'|' + name if name != 'list' else ''}' command")
        many = await client.say(("SG.BULK", *most.split(), "more"))
        assert many == f"{wrong} 'sg.bulk|{name}' command"
        for line in (least, most):
            assert wrong not in str(await client.say(f"SG.BULK {line}"))
        client.talk.lose()

    run(story())


def test_an_upload_that_cannot_be_says_why() -> None:
    async def story() -> None:
        client = Client()
        good = digest(b"")
        for line, why in (
            ("SG.BULK", "wrong number of arguments for 'sg.bulk' command"),
            ("SG.BULK NOPE t", "unknown subcommand 'NOPE'"),
            ("SG.BULK BEGIN t", "wrong number of arguments for 'sg.bulk|begin' command"),
            ("SG.BULK BEGIN t n add", "give MERGE or REPLACE"),
            ("SG.BULK SHOW t n", "begin it first"),
            (f"SG.BULK PART t n x {good} rows", "give a whole number from 0 on"),
            (f"SG.BULK PART t n -1 {good} rows", "give a whole number from 0 on"),
            ("SG.BULK PART t n 0 12 rows", "give 64 hex digits"),
            (f"SG.BULK PART t n {1 << 53} {good} rows", "begin it first"),
            (f"SG.BULK PART t n {(1 << 53) + 1} {good} rows", "give a whole number from 0 on"),
            (f"SG.BULK PART t n 0 {good}00 rows", "give 64 hex digits"),
            (f"SG.BULK COMMIT t n 0 0 {good}", "begin it first"),
            (f"SG.BULK COMMIT t n 1 -1 {good}", "rows: '-1'"),
            (f"SG.BULK COMMIT t n -1 1 {good}", "parts: '-1'"),
            ("SG.BULK COMMIT t n 1 1 zz", "give 64 hex digits"),
        ):
            assert why in await client.say(line), line
        client.talk.lose()

    run(story())


@given(st.sets(st.integers(0, 40)))
def test_numbers_are_told_as_spans(numbers: set[int]) -> None:
    reply = spans(sorted(numbers))
    back = set()
    for span in reply.split(",") if reply else ():
        first, _, last = span.partition("-")
        back |= set(range(int(first), int(last or first) + 1))
    assert back == numbers
    assert spans([7, 0, 2, 4, 1, 6]) == "0-2,4,6-7"
