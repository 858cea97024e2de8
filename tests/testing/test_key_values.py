"""The dispatcher in memory that users test against."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from sluicegate.contracts.access import EVERY_TABLE_GRANT, Identity, TableGrant
from sluicegate.contracts.engine import KeyRange, Place
from sluicegate.contracts.errors import BadValue, Forbidden, Unavailable
from sluicegate.contracts.key_values import (
    CallContext,
    KeyValues,
    Row,
    Write,
    WriteCondition,
    WriteIfResult,
    tag_of,
)
from sluicegate.testing import HandClock
from sluicegate.testing.key_values import MemoryKeyValues
from tests.stores.redis.live import run

ASK = CallContext(Identity("ann", (), {"t": EVERY_TABLE_GRANT}))
READ = CallContext(Identity("bob", (), {"t": frozenset({TableGrant.READ})}))


async def filled(service: MemoryKeyValues, *sorts: bytes) -> None:
    await service.write("t", [Write(b"p", sort, b"v" + sort) for sort in sorts], ASK)


async def now(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


def test_it_is_a_dispatcher() -> None:
    service: KeyValues = MemoryKeyValues()
    assert service.get("t", b"p", b"", ASK) is None


@pytest.mark.parametrize("late", [False, True])
def test_what_is_written_is_read_until_its_time_is_over(late: bool) -> None:
    async def story() -> None:
        clock = HandClock()
        service = MemoryKeyValues(clock, late=late)
        await service.write("t", [Write(b"p", b"", b"1", 5), Write(b"p", b"a", b"2")], ASK)
        answer = service.get("t", b"p", b"", ASK)
        assert isinstance(answer, Awaitable) is late
        assert await now(answer) == Row(b"", b"1", clock.now_us() + 5)
        assert await service.expire("t", b"p", b"a", 10, ASK)
        clock.advance(us=5)
        rows = await now(service.get_each("t", [(b"p", b""), (b"p", b"a")], ASK))
        assert rows == [None, Row(b"a", b"2", clock.now_us() + 5)]
        assert not await service.expire("t", b"p", b"", 0, ASK)
        assert await service.remove("t", [(b"p", b""), (b"p", b"a"), (b"p", b"a")], ASK) == 1

    run(story())


def test_conditions_are_about_what_is_there() -> None:
    async def story() -> None:
        service = MemoryKeyValues()
        write = Write(b"p", b"", b"1")
        for condition, done in (
            (WriteCondition(present=True), False),
            (WriteCondition(absent=True), True),
            (WriteCondition(absent=True), False),
            (WriteCondition(tag=tag_of(b"2")), False),
            (WriteCondition(tag=tag_of(b"1")), True),
            (WriteCondition(present=True), True),
        ):
            assert (await service.write_if("t", write, condition, ASK)).done is done
        answer = await service.write_if(
            "t", write._replace(value=None), WriteCondition(present=True), ASK
        )
        assert answer == WriteIfResult(True, None)
        for none in (WriteCondition(), WriteCondition(absent=True, present=True)):
            with pytest.raises(BadValue, match="exactly one"):
                await service.write_if("t", write, none, ASK)

    run(story())


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_goes_on_by_its_token_and_by_no_other(reverse: bool) -> None:
    async def story() -> None:
        service = MemoryKeyValues()
        await filled(service, b"", b"a", b"b", b"c")
        span = KeyRange(b"a", b"c\x00", reverse, rows_max=2)
        first = await service.scan("t", b"p", span, ASK)
        second = await service.scan("t", b"p", span, ASK, first.token)
        sorts = [row.sort for row in (*first.rows, *second.rows)]
        assert sorts == ([b"c", b"b", b"a"] if reverse else [b"a", b"b", b"c"])
        assert first.token
        assert not second.token
        with pytest.raises(BadValue, match="go on with"):
            await service.scan("t", b"q", span, ASK, first.token)
        small = await service.scan("t", b"p", KeyRange(bytes_max=1), ASK)
        assert (len(small.rows), bool(small.token)) == (1, True)

    run(story())


def test_a_walk_tells_every_place_once() -> None:
    async def story() -> None:
        service = MemoryKeyValues()
        await filled(service, b"", b"a", b"b")
        places: list[Place] = []
        after: Place | None = None
        while True:
            walked = await service.walk("t", after, 2, ASK)
            places += walked.places
            after = walked.after
            if after is None:
                break
        assert places == [(b"p", b""), (b"p", b"a"), (b"p", b"b")]

    run(story())


def test_it_raises_what_it_is_told_and_remembers_who_asked() -> None:
    async def story() -> None:
        service = MemoryKeyValues()
        service.raise_next(Unavailable("it", "gone"), times=2)
        for _ in range(2):
            with pytest.raises(Unavailable):
                service.get("t", b"p", b"", ASK)
        assert service.get("t", b"p", b"", ASK) is None
        assert [one.operation for one in service.calls] == ["get"] * 3
        with pytest.raises(Forbidden):
            await service.write("t", [], READ)
        with pytest.raises(Forbidden):
            await service.uploads.all("t", READ)
        for table in ("", "T", "-t", "t" * 65):
            with pytest.raises(BadValue, match="table"):
                service.get(table, b"p", b"", ASK)
        for place in ((b"", b""), (b"p" * 241, b""), (b"p", b"s" * 241)):
            with pytest.raises(BadValue):
                service.get("t", *place, ASK)
        assert len(service.calls) == 6

    run(story())
