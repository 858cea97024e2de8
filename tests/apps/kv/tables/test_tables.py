"""Tables: rows that expire, conditions, scans and walks over one space, without any upload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.tokens import read_token, span_after, token_after
from sluicegate.contracts.engine import KeyRange
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.key_values import Row, Write, WriteCondition, tag_of
from sluicegate.testing import START_US, HandClock
from tests.apps.kv.tables.dispatchers import SETTINGS, Crashing, Node, memory


def node(**settings: Any) -> Node:
    made = TableSettings(**settings) if settings else SETTINGS
    return Node(memory(), HandClock(), made)


async def rows(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


async def test_a_row_is_told_at_once_once_its_table_is_known() -> None:
    one = node()
    await one.tables.write("t", [Write(b"p", b"s", b"v")], START_US)
    assert one.tables.read_one("t", b"p", b"s", START_US) == Row(b"s", b"v")
    assert one.tables.read("t", [(b"p", b"s"), (b"p", b"x")], START_US) == [Row(b"s", b"v"), None]


async def test_a_table_that_another_has_just_made_is_read_at_once() -> None:
    one = node()
    other = Node(one.engine, one.clock)
    assert await rows(other.tables.read_one("t", b"p", b"", START_US)) is None
    await one.tables.write("t", [Write(b"p", b"", b"v")], START_US)
    assert await rows(other.tables.read_one("t", b"p", b"", START_US)) == Row(b"", b"v")


async def test_a_row_is_gone_from_the_instant_it_expires() -> None:
    one = node()
    await one.tables.write("t", [Write(b"p", b"s", b"v", 100)], START_US)
    expires_us = START_US + 100
    assert one.tables.read_one("t", b"p", b"s", expires_us - 1) == Row(b"s", b"v", expires_us)
    assert one.tables.read_one("t", b"p", b"s", expires_us) is None
    page = await one.tables.scan("t", b"p", KeyRange(), expires_us)
    assert (page.rows, page.more, page.rows_scanned) == ([], False, 1)


async def test_expire_sets_and_takes_away_the_end_of_what_is_there() -> None:
    one = node()
    assert not await one.tables.expire("t", b"p", b"s", 5, START_US)
    await one.tables.write("t", [Write(b"p", b"s", b"v")], START_US)
    assert await one.tables.expire("t", b"p", b"s", 5, START_US)
    assert one.tables.read_one("t", b"p", b"s", START_US) == Row(b"s", b"v", START_US + 5)
    assert await one.tables.expire("t", b"p", b"s", 0, START_US)
    assert one.tables.read_one("t", b"p", b"s", START_US + 9) == Row(b"s", b"v")


async def test_a_conditional_write_judges_what_can_be_seen() -> None:
    one = node()
    put, other = Write(b"p", b"s", b"v", 10), Write(b"p", b"s", b"w")
    absent, present = WriteCondition(absent=True), WriteCondition(present=True)
    assert await one.tables.write_if("t", put, present, START_US) == (False, None)
    assert (await one.tables.write_if("t", put, absent, START_US)).done
    result = await one.tables.write_if("t", other, absent, START_US)
    assert result == (False, Row(b"s", b"v", START_US + 10))
    assert not (
        await one.tables.write_if("t", other, WriteCondition(tag=tag_of(b"x")), START_US)
    ).done
    assert (await one.tables.write_if("t", other, absent, START_US + 10)).done  # it has expired
    deletion = Write(b"p", b"s", None)
    result = await one.tables.write_if("t", deletion, WriteCondition(tag=tag_of(b"w")), START_US)
    assert result == (True, None)
    assert one.tables.read_one("t", b"p", b"s", START_US) is None


async def test_of_two_who_write_on_the_same_condition_one_does() -> None:
    engine = Crashing(memory(), later=True)
    clock = HandClock()
    nodes = [Node(engine, clock) for _ in range(8)]
    results = await asyncio.gather(
        *[
            one.tables.write_if(
                "t", Write(b"p", b"", b"%d" % at), WriteCondition(absent=True), START_US
            )
            for at, one in enumerate(nodes)
        ]
    )
    assert sum(one.done for one in results) == 1
    (winner,) = [b"%d" % at for at, one in enumerate(results) if one.done]
    assert {one.row.value for one in results if one.row is not None} == {winner}


async def test_every_increment_of_a_counter_counts() -> None:
    engine = Crashing(memory(), later=True)
    clock = HandClock()
    first = Node(engine, clock)
    await first.tables.write("t", [Write(b"n", b"", b"0")], START_US)

    async def add(one: Node) -> None:
        while True:
            row = await rows(one.tables.read_one("t", b"n", b"", START_US))
            new = Write(b"n", b"", b"%d" % (int(row.value) + 1))
            result = await one.tables.write_if(
                "t", new, WriteCondition(tag=tag_of(row.value)), START_US
            )
            if result.done:
                return

    await asyncio.gather(*[add(Node(engine, clock)) for _ in range(12)])
    assert (await rows(first.tables.read_one("t", b"n", b"", START_US))).value == b"12"


async def test_remove_counts_what_was_there_once_each() -> None:
    one = node()
    await one.tables.write("t", [Write(b"p", b"1", b""), Write(b"p", b"2", b"", 5)], START_US)
    places = [(b"p", b"1"), (b"p", b"1"), (b"p", b"2"), (b"p", b"3")]
    assert await one.tables.remove("t", places, START_US + 5) == 1
    assert await one.tables.remove("t", places, START_US + 5) == 0


async def test_tables_are_bounded_and_well_named() -> None:
    one = node(tables_max=2)
    for table in ("a", "b", "a"):
        await one.tables.write(table, [Write(b"p", b"", b"v")], START_US)
    with pytest.raises(BadValue, match="there are 2 tables"):
        await one.tables.write("c", [Write(b"p", b"", b"v")], START_US)
    for wrong in ("", "A", "-a", "a" * 65, "a/b", "ä", "a\n"):
        with pytest.raises(BadValue, match="table"):
            await one.tables.write(wrong, [Write(b"p", b"", b"v")], START_US)
        with pytest.raises(BadValue, match="table"):
            await rows(one.tables.read_one(wrong, b"p", b"", START_US))


@pytest.mark.parametrize(
    "write",
    [
        Write(b"", b"", b"v"),
        Write(b"p" * 241, b"", b"v"),
        Write(b"p", b"s" * 241, b"v"),
        Write(b"p", b"", b"v" * 101),
        Write(b"p", b"", b"v", -1),
        Write(b"p", b"", b"v", 1 << 63),
    ],
)
async def test_what_cannot_be_kept_is_a_wrong_value(write: Write) -> None:
    one = node(value_bytes_max=100)
    with pytest.raises(BadValue):
        await one.tables.write("t", [write], START_US)


@pytest.mark.parametrize(
    "condition",
    [
        WriteCondition(),
        WriteCondition(absent=True, present=True),
        WriteCondition(present=True, tag=b"x" * 16),
    ],
)
async def test_a_condition_says_one_thing(condition: WriteCondition) -> None:
    with pytest.raises(BadValue, match="condition"):
        await node().tables.write_if("t", Write(b"p", b"", b"v"), condition, START_US)


async def test_a_stored_value_of_a_newer_release_is_told_as_that() -> None:
    one = node()
    await one.tables.write("t", [Write(b"p", b"", b"v")], START_US)
    await one.engine.load("t/t", [(b"p", b"", b"\x20new")])
    with pytest.raises(Unavailable, match="newer release"):
        one.tables.read_one("t", b"p", b"", START_US)


KEYS = st.integers(0, 12).map(lambda number: b"%02d" % number)


@given(
    st.dictionaries(KEYS, st.tuples(st.binary(max_size=6), st.sampled_from([0, 1, 100]))),
    st.none() | KEYS,
    st.none() | KEYS,
    st.booleans(),
    st.integers(1, 8),
    st.integers(1, 30),
    st.integers(1, 6),
)
def test_a_scan_tells_what_a_sorted_dictionary_does(
    contents: dict[bytes, tuple[bytes, int]],
    begin: bytes | None,
    end: bytes | None,
    reverse: bool,
    rows_max: int,
    bytes_max: int,
    scan_rows_max: int,
) -> None:
    async def story() -> None:
        one = node(scan_rows_max=scan_rows_max)
        writes = [Write(b"p", sort, value, ttl) for sort, (value, ttl) in contents.items()]
        if writes:
            await one.tables.write("t", writes, START_US)
        now_us = START_US + 1
        span = KeyRange(begin or b"", end, reverse, rows_max, bytes_max)
        alive = sorted(
            (sort for sort, (_, ttl) in contents.items() if ttl != 1 and sort >= span.begin),
            reverse=reverse,
        )
        alive = [sort for sort in alive if end is None or sort < end]
        sorts: list[bytes] = []
        token = b""
        while True:
            page = await one.tables.scan("t", b"p", read_token(token, "t", b"p", span), now_us)
            sorts += [row.sort for row in page.rows]
            size = 0
            for row in page.rows:
                assert size < bytes_max
                size += len(row.sort) + len(row.value)
            assert len(page.rows) <= rows_max
            if not page.more:
                break
            short = len(page.rows) < rows_max and size < bytes_max
            assert not short or page.rows_scanned >= scan_rows_max
            if page.rows_scanned < scan_rows_max:
                assert len(sorts) < len(alive)  # there is a row to be seen
            assert page.last is not None
            token = token_after("t", b"p", span, page.last)
        assert sorts == alive

    asyncio.run(story())


def test_a_token_is_bound_to_what_it_was_told_for() -> None:
    span = KeyRange(b"a", b"x")
    token = token_after("t", b"p", span, b"k")
    assert read_token(token, "t", b"p", span) == span_after(span, b"k") == KeyRange(b"k\x00", b"x")
    back = span._replace(reverse=True)
    assert read_token(token_after("t", b"p", back, b"k"), "t", b"p", back).end == b"k"
    for table, partition, other in (("u", b"p", span), ("t", b"q", span), ("t", b"p", back)):
        with pytest.raises(BadValue, match="token"):
            read_token(token, table, partition, other)
    for wrong in (b"\x03" + token[1:], token[:5], b"\x00", token + b"x" * 300):
        with pytest.raises(BadValue, match="token"):
            read_token(wrong, "t", b"p", span)
    wide = token_after("t", b"p", span, b"")
    assert read_token(wide, "t", b"p", span) == span  # it does not widen the span


async def test_a_walk_tells_every_place_that_can_be_seen() -> None:
    one = node()
    writes = [Write(b"%d" % at, b"%d" % way, b"v", way) for at in range(5) for way in range(3)]
    await one.tables.write("t", writes, START_US)
    places: list[Any] = []
    after = None
    while True:
        page = await one.tables.walk("t", after, 4, START_US + 1)
        places += page.places
        after = page.after
        if after is None:
            break
    assert sorted(places) == sorted((w.partition, w.sort) for w in writes if w.ttl_us != 1)
    with pytest.raises(BadValue, match="after"):
        await one.tables.walk("t", (b"5", b""), 4, START_US)


async def test_an_old_view_is_not_used_for_writes_or_reads() -> None:
    engine = Crashing(memory())
    clock = HandClock()
    one = Node(engine, clock)
    await one.tables.write("t", [Write(b"p", b"", b"v")], START_US)
    until_us = one.catalogue.fresh_until_us
    assert until_us == START_US + 2 * SETTINGS.stale_us
    assert isinstance(one.tables.read_one("t", b"p", b"", until_us), Row)
    clock.advance(us=until_us + 1 - START_US)
    answer = one.tables.read_one("t", b"p", b"", clock.now_us())
    assert isinstance(answer, Awaitable)
    assert await answer == Row(b"", b"v")
    assert one.catalogue.fresh_until_us > clock.now_us()
