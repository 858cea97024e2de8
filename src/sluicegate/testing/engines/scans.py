"""Scans: rows of one partition in the order of their bytes, from either side, in pages."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio

import pytest

from sluicegate.testing.engines.trial import EngineChecks, EngineTrial

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
    """Stories of `scan`."""

    @each_way
    def test_any_range_holds_what_is_between_its_ends(self, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.write(*ROWS)
            edges = (*SORTS, b"a\0\0", b"zz")
            for begin in edges:
                await asyncio.gather(
                    *(
                        trial.scan(b"p", begin=begin, end=end, reverse=reverse)
                        for end in (None, *edges)
                    )
                )

        self.tell(story)

    @each_way
    def test_rows_of_other_partitions_are_never_among_them(self, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            near = (b"p", b"o", b"q", b"p\0", b"pp", b"\xff", b"\xff\xff", b"\0", b"o\xff")
            for partition in near:
                await trial.write((partition, b"", partition), (partition, b"\xff", partition))
            await trial.write((b"p", b"s", b"other space"), name="t2")
            for partition in (*near, b"absent", b"\xff\xff\xff"):
                await trial.scan(partition, reverse=reverse)
                await trial.scan(partition, begin=b"p", reverse=reverse)

        self.tell(story)

    @each_way
    @pytest.mark.parametrize("rows_max", [1, 2, 3, len(SORTS) - 1, len(SORTS)])
    def test_pages_tell_every_row_once(self, rows_max: int, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.write(*ROWS)
            told: list[bytes] = []
            begin, end = b"", None
            while True:
                page = await trial.scan(
                    b"p", begin=begin, end=end, reverse=reverse, rows_max=rows_max
                )
                told += [sort for sort, _ in page.rows]
                if not page.more:
                    break
                if reverse:
                    end = told[-1]
                else:
                    begin = told[-1] + b"\0"
            assert told == sorted(SORTS, reverse=reverse)

        self.tell(story)

    @each_way
    def test_no_further_row_comes_once_there_are_so_many_bytes(self, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            # Ten bytes each.
            await trial.write(*((b"p", b"%03d" % number, b"1234567") for number in range(10)))
            for bytes_max, rows in ((1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (91, 10)):
                page = await trial.scan(b"p", reverse=reverse, bytes_max=bytes_max)
                assert len(page.rows) == rows
                assert page.more is (rows < 10)
            page = await trial.scan(b"p", reverse=reverse, bytes_max=100, rows_max=10)
            assert not page.more, "ten rows are all there are"

        self.tell(story)

    @each_way
    def test_a_row_larger_than_all_that_was_asked_for_is_told_alone(self, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            large = b"x" * 100_000
            await trial.write(*((b"p", b"%d" % number, large) for number in range(3)))
            page = await trial.scan(b"p", reverse=reverse, bytes_max=10)
            assert len(page.rows) == 1
            assert page.more

        self.tell(story)

    @each_way
    def test_there_is_more_only_if_it_is_within_the_range(self, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.write(*((b"p", b"%02d" % number, b"v") for number in range(20)))
            page = await trial.scan(b"p", begin=b"05", end=b"10", rows_max=5, reverse=reverse)
            assert not page.more
            page = await trial.scan(b"p", begin=b"05", end=b"11", rows_max=5, reverse=reverse)
            assert page.more

        self.tell(story)

    @each_way
    def test_a_long_partition_is_told_whole(self, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.load(
                [(b"p", b"%06d" % (n * 7919 % 3_000), b"%d" % n) for n in range(3_000)]
            )
            page = await trial.scan(b"p", rows_max=10_000, reverse=reverse)
            assert len(page.rows) == 3_000
            await trial.scan(b"p", begin=b"000100", end=b"002900", rows_max=1_500, reverse=reverse)

        self.tell(story)

    @each_way
    def test_deleted_rows_are_passed_over(self, reverse: bool) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.write(*((b"p", b"%03d" % number, b"v") for number in range(100)))
            await trial.write(
                *((b"p", b"%03d" % number, None) for number in range(100) if number % 10)
            )
            page = await trial.scan(b"p", rows_max=9, reverse=reverse)
            assert page.more
            page = await trial.scan(b"p", rows_max=10, reverse=reverse)
            assert not page.more

        self.tell(story)
