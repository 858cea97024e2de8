"""Scans and walks: the rows of a partition in order, and a whole space, each entry exactly once."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX, Place
from sluicegate.contracts.errors import BadValue
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial, engine_check

# In the order of their bytes.
SORTS = (
    b"",
    b"\0",
    b"\0\0",
    b"\0\xff",
    b"a",
    b"a\0",
    b"ab",
    b"b",
    b"\x7f",
    b"\x80",
    b"\xfe\xff",
    b"\xff",
    b"\xff\xff",
    b"\xff" * 240,
)
ROWS = tuple((b"p", sort, b"v" + sort) for sort in SORTS)

each_way = pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])


class ScanChecks(EngineChecks):
    """Checks of `scan`."""

    @each_way
    @engine_check
    async def test_any_range_holds_what_is_between_its_ends(
        self, trial: EngineTrial, reverse: bool
    ) -> None:
        await trial.write(*ROWS)
        edges = (*SORTS, b"a\0\0", b"zz")
        for begin in edges:
            await asyncio.gather(
                *(trial.scan(b"p", begin=begin, end=end, reverse=reverse) for end in (None, *edges))
            )

    @each_way
    @engine_check
    async def test_rows_of_other_partitions_are_never_among_them(
        self, trial: EngineTrial, reverse: bool
    ) -> None:
        near = (b"p", b"o", b"q", b"p\0", b"pp", b"\xff", b"\xff\xff", b"\0", b"o\xff")
        for partition in near:
            await trial.write((partition, b"", partition), (partition, b"\xff", partition))
        await trial.write((b"p", b"s", b"other space"), name="t2")
        for partition in (*near, b"absent", b"\xff\xff\xff"):
            await trial.scan(partition, reverse=reverse)
            await trial.scan(partition, begin=b"p", reverse=reverse)

    @each_way
    @pytest.mark.parametrize("rows_max", [1, 2, 3, len(SORTS) - 1, len(SORTS)])
    @engine_check
    async def test_pages_tell_every_row_once(
        self, trial: EngineTrial, rows_max: int, reverse: bool
    ) -> None:
        await trial.write(*ROWS)
        sorts: list[bytes] = []
        begin, end = b"", None
        while True:
            page = await trial.scan(b"p", begin=begin, end=end, reverse=reverse, rows_max=rows_max)
            sorts += [sort for sort, _ in page.rows]
            if not page.more:
                break
            if reverse:
                end = sorts[-1]
            else:
                begin = sorts[-1] + b"\0"
        assert sorts == sorted(SORTS, reverse=reverse)

    @each_way
    @engine_check
    async def test_no_further_row_comes_once_there_are_so_many_bytes(
        self, trial: EngineTrial, reverse: bool
    ) -> None:
        # Ten bytes each.
        await trial.write(*((b"p", b"%03d" % number, b"1234567") for number in range(10)))
        for bytes_max, rows in ((1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (91, 10)):
            page = await trial.scan(b"p", reverse=reverse, bytes_max=bytes_max)
            assert len(page.rows) == rows
            assert page.more is (rows < 10)
        page = await trial.scan(b"p", reverse=reverse, bytes_max=100, rows_max=10)
        assert not page.more, "ten rows are all there are"

    @each_way
    @engine_check
    async def test_a_row_larger_than_all_that_was_asked_for_is_told_alone(
        self, trial: EngineTrial, reverse: bool
    ) -> None:
        large = b"x" * 100_000
        await trial.write(*((b"p", b"%d" % number, large) for number in range(3)))
        page = await trial.scan(b"p", reverse=reverse, bytes_max=10)
        assert len(page.rows) == 1
        assert page.more

    @each_way
    @engine_check
    async def test_there_is_more_only_if_it_is_within_the_range(
        self, trial: EngineTrial, reverse: bool
    ) -> None:
        await trial.write(*((b"p", b"%02d" % number, b"v") for number in range(20)))
        page = await trial.scan(b"p", begin=b"05", end=b"10", rows_max=5, reverse=reverse)
        assert not page.more
        page = await trial.scan(b"p", begin=b"05", end=b"11", rows_max=5, reverse=reverse)
        assert page.more

    @each_way
    @engine_check
    async def test_a_long_partition_is_told_whole(self, trial: EngineTrial, reverse: bool) -> None:
        await trial.load([(b"p", b"%06d" % (n * 7919 % 3_000), b"%d" % n) for n in range(3_000)])
        page = await trial.scan(b"p", rows_max=10_000, reverse=reverse)
        assert len(page.rows) == 3_000
        await trial.scan(b"p", begin=b"000100", end=b"002900", rows_max=1_500, reverse=reverse)

    @each_way
    @engine_check
    async def test_deleted_rows_are_passed_over(self, trial: EngineTrial, reverse: bool) -> None:
        await trial.write(*((b"p", b"%03d" % number, b"v") for number in range(100)))
        await trial.write(*((b"p", b"%03d" % number, None) for number in range(100) if number % 10))
        page = await trial.scan(b"p", rows_max=9, reverse=reverse)
        assert page.more
        page = await trial.scan(b"p", rows_max=10, reverse=reverse)
        assert not page.more


ENTRIES = tuple(
    (b"p%d" % (number % 9) * (number % 3 + 1), b"%d" % number * (number % 4), b"%d" % number)
    for number in range(150)
)


class WalkChecks(EngineChecks):
    """Checks of `walk`."""

    @pytest.mark.parametrize("rows_max", [1, 7, 1_000])
    @engine_check
    async def test_a_walk_tells_everything_once(self, trial: EngineTrial, rows_max: int) -> None:
        entries = ENTRIES[:40] if rows_max == 1 else ENTRIES
        await trial.write(*entries)
        await trial.write((b"p", b"", b"elsewhere"), name="t2")
        sorts = await trial.walk(rows_max)
        assert len({(partition, sort) for partition, sort, _ in sorts}) == len(sorts)

    @engine_check
    async def test_a_walk_beside_writes_tells_once_what_is_there_throughout(
        self, trial: EngineTrial
    ) -> None:
        stays = [(b"p%d" % (n % 20), b"stays%d" % n, b"v") for n in range(100)]
        goes = [(b"p%d" % (n % 20), b"goes%d" % n, b"v") for n in range(60)]
        await trial.write(*stays, *goes)
        sorts: Counter[Place] = Counter()
        after: Place | None = None
        step = 0
        space = trial.space()
        while page := await trial.engine.walk(space, after, 10):
            sorts.update((partition, sort) for partition, sort, _ in page)
            after = (page[-1][0], page[-1][1])
            step += 1
            if step > 12:
                continue  # or there would always be something new behind the last
            partition, sort, _ = goes[step]
            await trial.write(
                (partition, sort, None),  # gone in the middle
                (b"p%d" % (step % 20), b"comes%d" % step, b"v"),
                (b"new%d" % step, b"", b"v"),
                (stays[step][0], stays[step][1], b"changed"),
            )
        assert all(sorts[partition, sort] == 1 for partition, sort, _ in stays)
        assert max(sorts.values()) == 1

    @engine_check
    async def test_a_walk_goes_on_behind_a_place_that_is_gone(self, trial: EngineTrial) -> None:
        await trial.write(*((b"p%d" % (n % 3), b"%02d" % n, b"v") for n in range(30)))
        whole = await trial.walk()
        for at in (0, 9, 10, 28, 29):
            partition, sort, value = whole[at]
            await trial.write((partition, sort, None))
            rest = await trial.engine.walk(trial.space(), (partition, sort), 100)
            assert list(rest) == whole[at + 1 :]
            await trial.write((partition, sort, value))

    @engine_check
    async def test_a_walk_behind_what_no_walk_has_told_is_refused(self, trial: EngineTrial) -> None:
        places = [
            (b"p" * (PARTITION_BYTES_MAX + 1), b""),
            (b"", b"a"),
            (b"p", b"a" * (SORT_BYTES_MAX + 1)),
        ]
        await trial.write((b"q", b"", b"v"))
        for name in ("t", "no.such.space"):
            for after in places:
                with pytest.raises(BadValue, match="after"):
                    await trial.engine.walk(trial.space(name), after, 10)
        sorts = await trial.engine.walk(trial.space(), (b"", b""), 10)
        assert list(sorts) == [(b"q", b"", b"v")], "the empty place is before the first"

    @engine_check
    async def test_values_told_by_a_walk_are_those_that_are_there(self, trial: EngineTrial) -> None:
        await trial.write(*((b"p", b"%02d" % n, b"old") for n in range(30)))
        first = await trial.engine.walk(trial.space(), None, 10)
        await trial.write(*((b"p", b"%02d" % n, b"new") for n in range(30)))
        after = (first[-1][0], first[-1][1])
        second = await trial.engine.walk(trial.space(), after, 100)
        assert {value for _, _, value in second} == {b"new"}
