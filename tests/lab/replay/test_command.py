from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import command
from sluicegate.lab.replay import station as replay_station
from sluicegate.lab.replay.station import (
    Survey,
    design_station,
    replay_trace,
    survey_trace,
)
from sluicegate.lab.traces import Trace, TraceRow
from tests.lab.replay.test_bursts import bursts

SECOND = 1_000_000


def even(count: int, *, gap_us: int = 10_000, cost: int = 1) -> Trace:
    rows = [TraceRow(at * gap_us, f"k{at % 7}", 0, cost) for at in range(count)]
    return Trace("even", rows=lambda: iter(rows))


def lab(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(("replay", *words)))


def test_a_survey_tells_how_much_comes_and_when_it_is_worst() -> None:
    rows = [TraceRow(0, "a", 0, 5), TraceRow(SECOND, "b", 0, 1), TraceRow(SECOND, "c", 0, 9)]
    trace = Trace("it", rows=lambda: iter(rows))
    assert survey_trace(trace) == Survey(3, 15, SECOND, 10.0, cut=False)
    assert survey_trace(trace).cost_per_s == 15.0
    assert survey_trace(trace, speed=2).span_us == SECOND // 2
    assert survey_trace(trace, rows_max=2) == Survey(2, 6, SECOND, 5.0, cut=True)


def test_a_trace_without_rows_is_refused() -> None:
    with pytest.raises(BadValue, match="has rows"):
        survey_trace(Trace("it", rows=lambda: iter(())))


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
    rows = [TraceRow(at * 300, f"k{at}", 0, 1) for at in range(3_000)]
    trace = Trace("burst", rows=lambda: iter(rows))
    survey = survey_trace(trace)
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
    trace = bursts(2, rounds=2)
    survey = survey_trace(trace, rows_max=2_000)
    place = design_station(survey, workers=8, capacity=1_000.0, timeout_us=None, speed=1.0)
    make = replay_station.CANDIDATES["chain"]
    first, second = (replay_trace(trace, place, survey, make, 5) for _ in range(2))
    assert first.by_kind[0].good_us == second.by_kind[0].good_us


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


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("nothing-there",), "trace"),
        (("FILE", "--as", "nobody"), "--as"),
        (("FILE", "--speed", "0"), "--speed"),
        (("FILE", "--rows", "0"), "--rows"),
        (("FILE", "--capacity", "-3"), "--capacity"),
        (("FILE", "--timeout", "x"), "--timeout"),
        (("FILE", "--workers", "0"), "--workers"),
        (("FILE", "--seed", "-1"), "--seed"),
    ],
)
def test_what_cannot_be_used_is_named(words: tuple[str, ...], field: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,key\n1,a\n2,b\n")
    with pytest.raises(BadValue) as caught:
        lab(*(str(path) if word == "FILE" else word for word in words))
    assert caught.value.field == field
