"""Points: what was written is read, byte for byte, and nothing else is."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX, Change
from sluicegate.system import now_us
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial, engine_check

HOUR_US = 3_600_000_000
# Bytes that some format, script or query language may take for something else.
UNUSUAL = (
    b"\0",
    b"\0\0",
    b"\xff",
    b"\xff\xff",
    b"\xff\0",
    b"a",
    b"a\0",
    b"a\0b",
    b"ab",
    b"a:b",
    b"{a}b",
    b"}{",
    b"a b\r\n",
    b"'; --",
    b'"\\',
    b"*?[a]",
    b"\xc3\x28 is not UTF-8",
    "é ü 漢字".encode(),
    b"$1",
    b"%s%n",
    bytes(range(240)),
)


class PointChecks(EngineChecks):
    """Checks of `read`, `write` and `load` at single places."""

    @engine_check
    async def test_what_was_written_is_read_in_the_order_that_was_asked(
        self, trial: EngineTrial
    ) -> None:
        await trial.write((b"p", b"a", b"1"), (b"p", b"b", b"2"), (b"q", b"a", b"3"))
        values = await trial.read(
            (b"q", b"a"), (b"p", b"c"), (b"p", b"b"), (b"p", b"a"), (b"q", b"a"), (b"r", b"a")
        )
        assert values == [b"3", None, b"2", b"1", b"3", None]

    @engine_check
    async def test_no_places_are_no_values_and_no_changes_change_nothing(
        self, trial: EngineTrial
    ) -> None:
        await trial.change([])
        await trial.load([])
        assert await trial.read() == []

    @engine_check
    async def test_where_nothing_was_written_nothing_is_read(self, trial: EngineTrial) -> None:
        assert await trial.read((b"p", b""), (b"p", b"a")) == [None, None]
        assert not (await trial.scan(b"p")).rows
        assert await trial.walk() == []
        await trial.write((b"p", b"a", None))
        assert await trial.walk() == []

    @engine_check
    async def test_a_value_that_is_empty_is_a_value(self, trial: EngineTrial) -> None:
        await trial.write((b"p", b"", b""), (b"p", b"a", b""))
        assert await trial.read((b"p", b""), (b"p", b"a"), (b"p", b"b")) == [b"", b"", None]
        assert len((await trial.scan(b"p")).rows) == 2
        assert len(await trial.walk()) == 2

    @engine_check
    async def test_a_deleted_value_is_gone_and_may_come_again(self, trial: EngineTrial) -> None:
        await trial.write((b"p", b"a", b"1"), (b"p", b"b", b"2"))
        await trial.write((b"p", b"a", None), (b"p", b"never", None))
        await trial.compare()
        await trial.write((b"p", b"a", b"3"))
        await trial.compare()
        await trial.write((b"p", b"a", None), (b"p", b"b", None))
        assert await trial.walk() == []

    @engine_check
    async def test_of_one_place_named_twice_the_later_change_counts(
        self, trial: EngineTrial
    ) -> None:
        await trial.write(
            (b"p", b"a", b"1"), (b"p", b"b", b"1"), (b"p", b"a", b"2"), (b"p", b"b", None)
        )
        await trial.write((b"p", b"c", None), (b"p", b"c", b"3"), (b"p", b"c", b"4"))
        values = await trial.read((b"p", b"a"), (b"p", b"b"), (b"p", b"c"))
        assert values == [b"2", None, b"4"]
        await trial.compare()

    @engine_check
    async def test_any_bytes_are_a_partition_a_sort_key_and_a_value(
        self, trial: EngineTrial
    ) -> None:
        await trial.write(
            *((one, other, one + other) for one in UNUSUAL for other in (b"", *UNUSUAL))
        )
        for one in UNUSUAL:
            await trial.read(*((one, other) for other in (b"", *UNUSUAL)))
            await trial.scan(one)
        await trial.walk()

    @engine_check
    async def test_the_longest_keys_are_kept_apart(self, trial: EngineTrial) -> None:
        partition, sort = b"p" * PARTITION_BYTES_MAX, b"s" * SORT_BYTES_MAX
        await trial.write(
            (partition, sort, b"1"),
            (partition, sort[:-1], b"2"),
            (partition[:-1], b"p" + sort[:-1], b"3"),
            (b"\xff" * PARTITION_BYTES_MAX, b"\xff" * SORT_BYTES_MAX, b"4"),
        )
        await trial.compare()
        await trial.scan(b"\xff" * PARTITION_BYTES_MAX, reverse=True)

    @engine_check
    async def test_large_values_come_back_as_they_were(self, trial: EngineTrial) -> None:
        most = self.value_bytes_max
        sizes = sorted({1 << 12, 65_535, 65_536, min(1 << 20, most)})
        for size in sizes:
            await trial.write((b"p", b"%08d" % size, bytes(range(256)) * (size // 256 + 1)))
        await trial.write((b"largest", b"", b"\0" * (most - 1) + b"!"))
        await trial.compare()
        await trial.write((b"largest", b"", b"small"))
        await trial.compare()

    @engine_check
    async def test_one_call_may_change_several_partitions_and_spaces(
        self, trial: EngineTrial
    ) -> None:
        one, other = trial.space("one"), trial.space("two/x-y_z")
        await trial.change(
            [
                Change(space, b"p%d" % number, b"", b"%d" % number)
                for number in range(20)
                for space in (one, other)
            ]
        )
        await trial.change([Change(one, b"p3", b"", None), Change(other, b"p4", b"", None)])
        await trial.compare("one")
        await trial.compare("two/x-y_z")

    @engine_check
    async def test_what_is_purged_later_is_there_until_then_and_writing_anew_forgets_it(
        self, trial: EngineTrial
    ) -> None:
        space, later_us = trial.space(), now_us() + HOUR_US
        await trial.change([Change(space, b"p", b"a", b"1", later_us)])
        await trial.compare()
        # One that is due may be told or not, and writing it anew makes it stay.
        due = [Change(space, b"p", b"a", b"2", 1), Change(space, b"p", b"b", b"2", 1)]
        await trial.change(due)
        await trial.write((b"p", b"a", b"3"))
        assert await trial.read((b"p", b"a")) == [b"3"]
        await trial.write((b"p", b"b", b"4"))
        await trial.compare()

    @engine_check
    async def test_what_was_loaded_is_there_and_loading_again_changes_nothing(
        self, trial: EngineTrial
    ) -> None:
        entries = [
            (b"p%d" % (number * 7 % 10), b"%04d" % (number * 37 % 600), b"%d" % number)
            for number in range(600)
        ]
        await trial.write((b"p0", b"0000", b"before"), (b"p0", b"other", b"stays"))
        for _ in range(2):
            await trial.load(entries)
            await trial.compare()
