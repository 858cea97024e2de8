"""YCSB's mixes: that rows come as often as they should, and that no wrong value passes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from sluicegate.cli import main
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.ycsb.command import parse_mixes
from sluicegate.lab.ycsb.keys import RowChooser, Zipfian, scatter
from sluicegate.lab.ycsb.records import (
    DAMAGED,
    FOREIGN,
    MISPLACED,
    MISSING,
    NEVER_WRITTEN,
    STALE,
    WriteLedger,
    YcsbRecord,
    decode,
    encode,
)
from sluicegate.lab.ycsb.run import MIXES, YcsbResult, YcsbRun, YcsbSettings
from sluicegate.lab.ycsb.targets import EngineTarget, partition_of, row_of, sort_key_of
from sluicegate.stores.engines.memory import MemoryEngine
from sluicegate.testing import SeededChance

TINY = YcsbSettings(rows=250, ops=600, tasks=8, value_bytes=100)


# Which row comes next.


def test_ranks_come_as_often_as_zipf_says() -> None:
    rows, theta, draws = 100, 0.99, 200_000
    zipfian, draw = Zipfian(rows, theta), SeededChance(1).draw
    counts = Counter(zipfian.rank(draw()) for _ in range(draws))
    whole = sum(1 / (rank + 1) ** theta for rank in range(rows))
    for rank in (0, 1):  # those two are exact, the others an approximation
        assert abs(counts[rank] / draws - 1 / (rank + 1) ** theta / whole) < 0.005
    for few in (5, 20, 50):
        share = sum(1 / (rank + 1) ** theta for rank in range(few)) / whole
        assert abs(sum(counts[rank] for rank in range(few)) / draws - share) < 0.03
    assert set(counts) <= set(range(rows))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_of_few_rows_each_is_drawn_and_no_other(rows: int) -> None:
    zipfian = Zipfian(rows)
    assert {zipfian.rank(step / 1_000) for step in range(1_000)} == set(range(rows))


def test_a_zipfian_that_grew_is_one_that_was_made_so_large() -> None:
    grown, made = Zipfian(10), Zipfian(1_000)
    grown.grow(1_000)
    grown.grow(5)  # it never shrinks
    assert [grown.rank(n / 100) for n in range(100)] == [made.rank(n / 100) for n in range(100)]


def test_popular_rows_are_strewn_over_all() -> None:
    rows = [scatter(rank, 1_000) for rank in range(1_000)]
    assert len(set(rows)) > 500
    assert max(Counter(row // 100 for row in rows).values()) < 150


def test_the_latest_is_the_row_that_was_inserted_last_and_all_before_it_are_there() -> None:
    rows = RowChooser(10)
    assert rows.latest(0.0) == 9
    first, second = rows.next_row(), rows.next_row()
    rows.record_insert(second)
    assert (first, second, rows.latest(0.0)) == (10, 11, 9)
    rows.record_insert(first)
    assert rows.latest(0.0) == 11
    assert {rows.latest(n / 500) for n in range(500)} == set(range(12))


def test_a_row_is_found_where_it_was_put() -> None:
    for row in (0, 1, 99, 100, 12_345):
        assert row_of(partition_of(row), sort_key_of(row)) == row
    assert partition_of(99) != partition_of(100)
    assert sort_key_of(9) < sort_key_of(10)


# What a value tells.


def test_a_value_says_what_it_is_and_any_flipped_bit_shows() -> None:
    value = encode(YcsbRecord(7, 3, 2), 100)
    assert len(value) == 100
    assert decode(value) == YcsbRecord(7, 3, 2)
    for at in range(100):
        assert decode(value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]) is None
    assert decode(value[:-1]) is None
    assert decode(b"") is None


def test_each_wrong_value_is_told_by_its_fault() -> None:
    ledger = WriteLedger()
    version = ledger.begin(7)
    ledger.end(7, applied=True)
    floor = ledger.floor(7)

    def wrong(record: YcsbRecord) -> str:
        return ledger.find_fault(7, encode(record, 50), floor)

    assert wrong(YcsbRecord(7, version, 0)) == ""
    assert wrong(YcsbRecord(8, version, 0)) == MISPLACED
    assert wrong(YcsbRecord(7, version + 1, 0)) == NEVER_WRITTEN
    assert wrong(YcsbRecord(7, 0, 0)) == STALE
    assert wrong(YcsbRecord(7, version, 0, 1)) == FOREIGN
    assert ledger.find_fault(7, None, floor) == MISSING
    assert ledger.find_fault(7, b"x" * 50, floor) == DAMAGED
    assert ledger.find_fault(9, encode(YcsbRecord(9, 0, 0), 50), ledger.floor(9)) == ""


def test_of_writes_that_overlap_either_may_be_the_last() -> None:
    ledger = WriteLedger()
    first = ledger.begin(1)
    second = ledger.begin(1)
    assert ledger.floor(1) == 0
    ledger.end(1, applied=True)
    assert ledger.floor(1) == 0  # the other is still under way
    ledger.end(1, applied=True)
    assert ledger.floor(1) == first < second
    alone = ledger.begin(1)
    ledger.end(1, applied=True)
    assert ledger.floor(1) == alone


def test_behind_a_write_that_may_have_failed_no_age_is_wrong() -> None:
    ledger = WriteLedger()
    for made in (True, None, True):
        ledger.begin(1)
        ledger.end(1, applied=made)
    assert ledger.find_fault(1, encode(YcsbRecord(1, 2, 0), 50), 3) == ""


# Whole runs.


def run_of(
    mix: str, target: EngineTarget | None = None, settings: YcsbSettings = TINY
) -> YcsbResult:
    async def story() -> YcsbResult:
        engine_target = EngineTarget(MemoryEngine(), "t") if target is None else target
        try:
            return await YcsbRun(engine_target, MIXES[mix], settings, RandomSource(1).of).run()
        finally:
            await engine_target.close()

    return asyncio.run(story())


@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_asks_what_it_says_and_finds_every_value_right(mix: str) -> None:
    result = run_of(mix)
    assert result.right, result.shown
    assert result.ops == TINY.ops
    for name, share in MIXES[mix].shares:
        assert abs(result.timings[name].done / TINY.ops - share / 100) < 0.07
        assert result.timings[name].sketch.quantile(0.5) is not None


class Wrapped:
    """A target that does one thing wrong."""

    name = "wrong"

    def __init__(self) -> None:
        self.inner = EngineTarget(MemoryEngine(), "t")
        self.count = 0

    async def read(self, row: int) -> bytes | None:
        await asyncio.sleep(0)
        return await self.inner.read(row)

    async def write(self, row: int, value: bytes) -> None:
        await asyncio.sleep(0)
        await self.inner.write(row, value)

    async def swap(self, row: int, value: bytes, expected: bytes) -> bool:
        await asyncio.sleep(0)
        return await self.inner.swap(row, value, expected)

    async def scan(self, row: int, rows_max: int) -> Sequence[tuple[int, bytes]]:
        return await self.inner.scan(row, rows_max)

    async def load(self, rows: Sequence[tuple[int, bytes]]) -> None:
        await self.inner.load(rows)

    async def close(self) -> None:
        await self.inner.close()

    def due(self, every: int) -> bool:
        self.count += 1
        return self.count % every == 0


class SwapsBlindly(Wrapped):
    async def swap(self, row: int, value: bytes, expected: bytes) -> bool:
        await self.write(row, value)
        return True


class SwapsTwice(Wrapped):
    """Says no, and has done it."""

    async def swap(self, row: int, value: bytes, expected: bytes) -> bool:
        made = await super().swap(row, value, expected)
        return made and not self.due(20)


class LosesWrites(Wrapped):
    async def write(self, row: int, value: bytes) -> None:
        if not self.due(20):
            await super().write(row, value)


class MixesRowsUp(Wrapped):
    async def read(self, row: int) -> bytes | None:
        return await super().read(row ^ 1 if self.due(50) else row)


class LeavesRowsOut(Wrapped):
    async def scan(self, row: int, rows_max: int) -> Sequence[tuple[int, bytes]]:
        rows = await super().scan(row, rows_max)
        return rows[1:] if self.due(50) else rows


class Disorders(Wrapped):
    async def scan(self, row: int, rows_max: int) -> Sequence[tuple[int, bytes]]:
        rows = await super().scan(row, rows_max)
        return [rows[0], *rows[:0:-1]]


class Fails(Wrapped):
    """Fails now and then, and has done it every other time."""

    async def swap(self, row: int, value: bytes, expected: bytes) -> bool:
        if self.due(10):
            if self.count % 20:
                await super().swap(row, value, expected)
            raise Unavailable("the target", "it was told to fail")
        return await super().swap(row, value, expected)


def wrong_run(mix: str, target: Wrapped, **more: bool) -> YcsbResult:
    settings = YcsbSettings(rows=20, ops=600, tasks=8, value_bytes=100, **more)

    async def story() -> YcsbResult:
        try:
            return await YcsbRun(target, MIXES[mix], settings, RandomSource(1).of).run()
        finally:
            await target.close()

    return asyncio.run(story())


def test_a_target_that_swaps_blindly_loses_changes() -> None:
    result = wrong_run("F", SwapsBlindly())
    assert result.changes_lost > 0
    assert not result.right


def test_a_target_that_swaps_right_loses_none_however_many_compete() -> None:
    result = wrong_run("F", Wrapped())
    assert result.right, result.shown
    assert result.conflicts > 0


def test_a_target_that_says_no_and_does_it_makes_changes_too_many() -> None:
    assert wrong_run("F", SwapsTwice()).changes_extra > 0


def test_a_target_that_fails_is_not_wrong() -> None:
    result = wrong_run("F", Fails())
    assert result.right, result.shown
    assert result.timings["change"].failed > 10
    assert any("told to fail" in text for text in result.shown)


def test_a_target_that_loses_writes_is_stale_unless_that_is_allowed() -> None:
    assert wrong_run("A", LosesWrites()).wrong[STALE] > 0
    assert wrong_run("A", LosesWrites(), strong=False).right


def test_a_target_that_mixes_rows_up_is_found_out() -> None:
    assert wrong_run("C", MixesRowsUp()).wrong[MISPLACED] > 0


def test_a_range_that_leaves_rows_out_or_disorders_them_is_found_out() -> None:
    assert wrong_run("E", LeavesRowsOut()).wrong["missing from a range"] > 0
    assert wrong_run("E", Disorders()).wrong["out of order"] > 0


def test_what_an_earlier_run_has_inserted_is_not_held_against_this_one() -> None:
    async def story() -> None:
        target = EngineTarget(MemoryEngine(), "t")
        settings = YcsbSettings(rows=130, ops=400, tasks=4, value_bytes=100)
        try:
            for run, mix in enumerate("DEE"):
                result = await YcsbRun(
                    target, MIXES[mix], settings, RandomSource(1).of, run=run
                ).run()
                assert result.right, result.shown
        finally:
            await target.close()

    asyncio.run(story())


# The verb.


def test_the_verb_runs_the_mixes_against_an_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--mix", "A,F", "--rows", "200", "--ops", "300", "--tasks", "4", "--bytes", "60"]
    assert main(["lab", "ycsb", "--engine", f"lmdb:{tmp_path}/kv", *words]) == 0
    output = capsys.readouterr().out
    assert "mix A on engine lmdb" in output
    assert "mix F on engine lmdb" in output
    assert output.count("every value read was right") == 2
    assert "0 changes lost, 0 made twice" in output


def test_all_mixes_are_those_of_ycsb() -> None:
    assert "".join(mix.name for mix in parse_mixes("all")) == "ABCFDE"
    assert [mix.name for mix in parse_mixes("b, e")] == ["B", "E"]
    with pytest.raises(BadValue, match="--mix"):
        parse_mixes("G")


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"ops": 0}, {"tasks": 100_000}, {"value_bytes": 10}]
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadValue):
        YcsbSettings(**wrong)  # type: ignore[arg-type]
