"""Drills without their processes: bars, pictures, what is told, and the arithmetic of each."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from math import inf, nan
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.charts import Panel
from sluicegate.lab.drills import command, hot_key, recovery, report, shares
from sluicegate.lab.drills.drill import Drill, DrillBar, DrillOutcome, DrillSetting
from sluicegate.lab.drills.load import DrillLoad, schedule
from sluicegate.policies.cache.hot_key import HotKeySettings


def a_drill(outcome: DrillOutcome) -> Drill:
    played: list[DrillSetting] = []

    def play(setting: DrillSetting) -> DrillOutcome:
        played.append(setting)
        setting.progress("half way")
        return outcome

    return Drill("tiny", "A small one", "It is quick.", 5.0, 1.0, play, ("layers", "none"))


def verb(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> DrillOutcome:
    drill_outcome = DrillOutcome(figures={"asked a second": 1234.5, "well again after, s": inf})
    monkeypatch.setattr(command, "drills_by_name", lambda: {"tiny": a_drill(drill_outcome)})
    return drill_outcome


def test_a_bar_is_met_at_its_bound_and_not_by_what_cannot_be_told() -> None:
    assert DrillBar(claim="p99", value=5.0, at_most=5.0).met
    assert not DrillBar(claim="p99", value=5.1, at_most=5.0).met
    assert DrillBar(claim="served", value=0.0, at_least=0.0).met
    assert not DrillBar(claim="served", value=0.9, at_least=0.95).met
    for value in (inf, nan):
        assert not DrillBar(claim="p99", value=value, at_most=5.0).met
    with pytest.raises(BadValue, match="not both"):
        DrillBar(claim="x", value=1.0)
    with pytest.raises(BadValue, match="not both"):
        DrillBar(claim="x", value=1.0, at_least=0.0, at_most=2.0)


def test_a_control_must_miss() -> None:
    assert DrillBar(claim="served", value=0.1, at_least=0.999, must_miss=True).as_expected
    assert not DrillBar(claim="served", value=1.0, at_least=0.999, must_miss=True).as_expected


def test_a_void_run_has_not_held_whatever_its_bars_say() -> None:
    met = DrillBar(claim="p99", value=1.0, at_most=5.0)
    assert DrillOutcome(bars=[met]).passed
    assert not DrillOutcome(bars=[met], void=["late"]).passed
    assert not DrillOutcome(bars=[met, DrillBar(claim="p99", value=6.0, at_most=5.0)]).passed


def test_the_verb_tells_figures_bars_and_exits_by_them(
    outcome: DrillOutcome, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome.bars = [DrillBar(claim="served", value=0.9995, at_least=0.999, unit="%")]
    assert verb("tiny", "--out", str(tmp_path)) == 0
    output = capsys.readouterr()
    assert "asked a second       1,234" in output.out
    assert "well again after, s  never" in output.out
    assert "met     served: 99.95%, at least 99.90%" in output.out
    assert "half way" in output.err
    outcome.bars = [DrillBar(claim="p99", value=7.0, at_most=5.0, unit="ms")]
    assert verb("tiny", "--out", str(tmp_path)) == 1
    assert "MISSED  p99: 7 ms, at most 5 ms" in capsys.readouterr().out


def test_a_void_run_says_so_instead_and_exits_with_1(
    outcome: DrillOutcome, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome.bars = [DrillBar(claim="p99", value=1.0, at_most=5.0)]
    outcome.void = ["the generator was 93% busy, at most 80%"]
    assert verb("tiny", "--out", str(tmp_path)) == 1
    output = capsys.readouterr().out
    assert "VOID    the generator was 93% busy" in output
    assert "met " not in output
    assert "says nothing" in output


def test_a_control_that_fails_is_told_as_what_it_is(
    outcome: DrillOutcome, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome.bars = [DrillBar(claim="served", value=0.2, at_least=0.999, must_miss=True)]
    assert verb("tiny", "--policy", "none", "--out", str(tmp_path)) == 0
    assert "missed, as it must be" in capsys.readouterr().out
    outcome.bars = [DrillBar(claim="served", value=1.0, at_least=0.999, must_miss=True)]
    assert verb("tiny", "--policy", "none", "--out", str(tmp_path)) == 1
    assert "though it was to fail" in capsys.readouterr().out


def test_programs_get_json_without_infinities(
    outcome: DrillOutcome, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome.bars = [DrillBar(claim="p99", value=inf, at_most=5.0, unit="ms")]
    assert verb("tiny", "--json", "--seconds", "2.5", "--seed", "7", "--out", str(tmp_path)) == 1
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert answer["figures"] == {"asked a second": 1234.5, "well again after, s": None}
    assert answer["bars"][0]["value"] is None
    assert answer["bars"][0]["met"] is answer["held"] is False
    assert (answer["version"], answer["seconds"], answer["seed"]) == (1, 2.5, 7)


def test_the_picture_stands_in_the_folder_that_was_named(
    outcome: DrillOutcome, tmp_path: Path
) -> None:
    outcome.panels = [Panel("Served", "a second", "s", {"ours": [(0, 1), (1, 2)]})]
    assert verb("tiny", "--out", str(tmp_path / "new")) == 0
    assert (tmp_path / "new" / "tiny.svg").read_text("utf-8").startswith("<svg xmlns=")


def test_the_list_says_what_there_is(
    outcome: DrillOutcome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verb("list") == 0
    output = capsys.readouterr().out
    assert "tiny  A small one" in output
    assert "loads of 5 s; --policy none must fail" in output


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("nothing",), "NAME"),
        (("tiny", "--seconds", "0.5"), "--seconds"),
        (("tiny", "--seconds", "soon"), "--seconds"),
        (("tiny", "--seconds", "nan"), "--seconds"),
        (("tiny", "--policy", "generation-one"), "--policy"),
        (("tiny", "--seed", "-1"), "--seed"),
        (("tiny", "--out", __file__ + "/x"), "--out"),
    ],
)
def test_what_cannot_be_played_is_refused_by_its_flag(
    outcome: DrillOutcome, words: tuple[str, ...], field: str
) -> None:
    with pytest.raises(BadValue, match=field):
        verb(*words)


def test_every_drill_is_in_the_table_by_its_name_and_can_be_told() -> None:
    names = {
        "hot-key",
        "overload",
        "neighbour",
        "shard",
        "recovery",
        "shares",
        "byte-hog",
        "game",
    }
    assert set(command.drills_by_name()) == names
    for name, drill in command.drills_by_name().items():
        assert drill.name == name
        assert drill.seconds_min <= drill.seconds
        assert drill.policies[0] == "layers"


def curve(*values: float) -> list[tuple[float, float]]:
    """A value for each tenth of a second."""
    return [(0.05 + 0.1 * at, value) for at, value in enumerate(values)]


def test_it_has_recovered_when_no_later_half_second_is_below_95_in_100() -> None:
    offered = curve(*[100.0] * 40)
    good = curve(*[100.0] * 10, *[0.0] * 10, *[100.0] * 20)
    assert recovery.recovery_s(good, offered, 2.0) == pytest.approx(0.0, abs=0.051)
    assert recovery.recovery_s(good, offered, 1.0) == pytest.approx(1.0, abs=0.051)


def test_one_that_falls_back_has_not_recovered_before() -> None:
    offered = curve(*[100.0] * 40)
    good = curve(*[100.0] * 30, 0.0, *[100.0] * 9)
    assert recovery.recovery_s(good, offered, 1.0) == pytest.approx(2.1, abs=0.051)
    slightly = curve(*[100.0] * 30, 80.0, *[100.0] * 9)  # 480 of 500 are more than 95 of 100
    assert recovery.recovery_s(slightly, offered, 1.0) == pytest.approx(0.0, abs=0.051)


def test_one_that_is_not_well_at_the_end_never_was() -> None:
    offered = curve(*[100.0] * 40)
    assert recovery.recovery_s(curve(*[90.0] * 40), offered, 1.0) == inf


def test_the_policy_notices_five_hot_keys_within_50_ms_and_takes_longer_where_it_is_told_to() -> (
    None
):
    delays_ms = [hot_key.policy_detection_ms(seed) for seed in range(3)]
    assert max(delays_ms) <= hot_key.DETECTED_MS
    assert delays_ms == [hot_key.policy_detection_ms(seed) for seed in range(3)]
    assert hot_key.policy_detection_ms(0, HotKeySettings(saved_min=2_000.0)) > hot_key.DETECTED_MS
    assert hot_key.policy_detection_ms(0, HotKeySettings(saved_min=1e9)) == inf


def test_each_caller_of_the_shares_is_skewed_and_turns_away_from_who_is_killed() -> None:
    streams = shares.streams((1, 2, 3), kill_us=1_000_000)
    plan = schedule(DrillLoad(streams=streams, span_us=2_000_000))
    by_port = {1: [0, 0], 2: [0, 0], 3: [0, 0]}
    for due_us, number in zip(plan.due_us, plan.streams, strict=True):
        by_port[streams[number].ports[0]][due_us >= 1_000_000] += 1
    assert by_port[1][1] == 0
    assert min(by_port[1][0], by_port[3][0]) > 3 * by_port[2][0]
    assert min(by_port[2][1], by_port[3][1]) > 700
    assert sum(before for before, _ in by_port.values()) == pytest.approx(1_800, rel=0.1)
    assert sum(after for _, after in by_port.values()) == pytest.approx(1_800, rel=0.1)
    first = [stream for stream in streams if stream.name.startswith("first/")]
    assert sum(stream.ports == (1,) for stream in first) == 1


def test_a_bar_is_told_with_its_unit() -> None:
    assert report.render_bar(DrillBar(claim="x", value=inf, at_most=1.0, unit="%")) == (
        "x: never, at most 100.00%"
    )
    assert report.render_bar(DrillBar(claim="x", value=1.25, at_least=4)) == "x: 1.25, at least 4"
