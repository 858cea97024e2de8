from __future__ import annotations

import struct
from argparse import ArgumentParser
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import command
from sluicegate.lab.replay import station as replay_station
from sluicegate.lab.replay.station import (
    Survey,
    design_station,
    replay_keys,
    replay_trace,
    survey_trace,
)
from sluicegate.lab.traces.shapes import generate_trace
from sluicegate.lab.traces.trace import Trace, TraceRow

SECOND = 1_000_000


def even(count: int, *, gap_us: int = 10_000, cost: int = 1) -> Trace:
    rows = [TraceRow(at * gap_us, f"k{at % 7}", 0, cost) for at in range(count)]
    return Trace("even", timed=True, keyed=True, rows=lambda: iter(rows))


def lab(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(("replay", *words)))


def test_a_survey_tells_how_much_comes_and_when_it_is_worst() -> None:
    rows = [TraceRow(0, "a", 0, 5), TraceRow(SECOND, "b", 0, 1), TraceRow(SECOND, "c", 0, 9)]
    trace = Trace("it", timed=True, keyed=True, rows=lambda: iter(rows))
    assert survey_trace(trace) == Survey(3, 15, SECOND, 10.0, cut=False)
    assert survey_trace(trace).cost_per_s == 15.0
    assert survey_trace(trace, speed=2).span_us == SECOND // 2
    assert survey_trace(trace, rows_max=2) == Survey(2, 6, SECOND, 5.0, cut=True)


def test_a_trace_without_rows_is_refused() -> None:
    with pytest.raises(BadValue, match="has rows"):
        survey_trace(Trace("it", timed=True, keyed=True, rows=lambda: iter(())))
    empty = Trace("it", timed=False, keyed=True, rows=lambda: iter(()))
    with pytest.raises(BadValue, match="has rows"):
        replay_keys(empty, capacity=10, per_s=1.0, rows_max=10, seed=0)


def test_what_is_not_set_is_set_so_that_the_mean_load_is_four_fifths() -> None:
    survey = survey_trace(even(101, cost=3))
    place = design_station(survey, workers=4, capacity=None, timeout_us=None, speed=1.0)
    assert place.capacity == pytest.approx(survey.cost_per_s / 0.8)
    assert place.work_us(3) == pytest.approx(3 * 4 * SECOND / place.capacity, abs=1)
    assert place.timeout_us == pytest.approx(20 * place.work_us(3), abs=20)
    assert design_station(survey, workers=4, capacity=1e6, timeout_us=7, speed=1.0).timeout_us == 7


@pytest.mark.parametrize("name", replay_station.CANDIDATES)
def test_where_there_is_room_for_all_everybody_is_answered(name: str) -> None:
    trace = even(200)
    survey = survey_trace(trace)
    place = design_station(survey, workers=4, capacity=1_000.0, timeout_us=None, speed=1.0)
    ledger = replay_trace(trace, place, survey, replay_station.CANDIDATES[name], 0)
    figures = replay_station.figures_of(place, survey, ledger)
    assert figures["success"] == 1.0
    assert figures["p50_ms"] == 4.0  # a unit of 1,000 a second, shared by 4


def test_instants_and_costs_are_those_of_the_trace_and_speed_makes_them_denser() -> None:
    trace = even(200, cost=2)
    survey = survey_trace(trace, speed=8.0)
    place = design_station(survey, workers=4, capacity=1_000.0, timeout_us=500_000, speed=8.0)
    ledger = replay_trace(trace, place, survey, replay_station.CANDIDATES["fifo"], 0)
    assert survey.span_us == 199 * 10_000 // 8
    figures = replay_station.figures_of(place, survey, ledger)
    assert figures["p50_ms"] >= 8.0
    assert figures["utilization"] > 1.0  # what was left at the end was done after it
    assert ledger.by_kind[0].offered == 200


def test_our_chain_answers_more_than_a_pool_when_a_trace_bursts() -> None:
    trace = generate_trace("bursts", 1)
    survey = survey_trace(trace, rows_max=3_000)
    place = design_station(survey, workers=8, capacity=1_000.0, timeout_us=None, speed=1.0)
    figures = {
        name: replay_station.figures_of(
            place, survey, replay_trace(trace, place, survey, replay_station.CANDIDATES[name], 0)
        )
        for name in ("chain", "fifo")
    }
    assert figures["chain"]["success"] > figures["fifo"]["success"]
    assert figures["chain"]["wasted"] <= 0.01 < figures["fifo"]["wasted"]


def test_the_same_seed_replays_the_same() -> None:
    trace = generate_trace("bursts", 2)
    survey = survey_trace(trace, rows_max=2_000)
    place = design_station(survey, workers=8, capacity=1_000.0, timeout_us=None, speed=1.0)
    make = replay_station.CANDIDATES["chain"]
    first, second = (replay_trace(trace, place, survey, make, 5) for _ in range(2))
    assert first.by_kind[0].good_us == second.by_kind[0].good_us


def test_keys_alone_tell_hit_ratios_and_who_knows_the_hottest() -> None:
    keys = [f"k{at % 5}" if at % 2 else f"cold-{at}" for at in range(4_000)]
    trace = Trace("it", timed=False, keyed=True, rows=lambda: (TraceRow(0, key) for key in keys))
    figures = replay_keys(trace, capacity=50, per_s=10_000.0, rows_max=10_000, seed=0)
    # Half of all asks are for five keys, and nothing else is ever asked for again.
    assert figures["plain lru"]["hit_ratio"] == pytest.approx(0.5, abs=0.01)
    assert figures["lru_ttl"]["hit_ratio"] == figures["plain lru"]["hit_ratio"]
    assert 0.3 < figures["hot_key"]["hit_ratio"] <= 0.5
    assert figures["space_saving 2,000"][f"recall@{replay_station.HOT}"] == 1.0


def test_the_command_prints_the_same_figures_side_by_side(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("when,cost\n" + "".join(f"{at * 10},2\n" for at in range(100)))
    words = (
        "--time",
        "when",
        "--key",
        "none",
        "--unit",
        "ms",
        "--capacity",
        "100",
        "--as",
        "queue",
    )
    assert lab(str(path), *words) == 0
    output = capsys.readouterr().out
    assert "100 rows in 0.99 s" in output
    assert "load 2.02 on average" in output
    assert [line.split()[0] for line in output.splitlines()[2:]] == ["success", "queue", "fifo"]


def test_the_command_replays_keys_and_shapes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(struct.pack(">8I", 1, 2, 1, 2, 1, 2, 1, 2))
    assert lab(str(path), "--capacity", "4") == 0
    assert "hit_ratio" in capsys.readouterr().out
    assert lab("scans", "--rows", "300") == 0
    assert "the first 300 rows of more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("nothing-there",), "TRACE"),
        (("zipf", "--as", "nobody"), "--as"),
        (("zipf", "--speed", "0"), "--speed"),
        (("zipf", "--rows", "0"), "--rows"),
        (("zipf", "--capacity", "-3"), "--capacity"),
        (("zipf", "--timeout", "x"), "--timeout"),
        (("zipf", "--workers", "0"), "--workers"),
        (("zipf", "--seed", "-1"), "--seed"),
    ],
)
def test_what_cannot_be_used_is_named(words: tuple[str, ...], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        lab(*words)
    assert caught.value.field == field
