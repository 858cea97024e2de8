from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue, MissingPackage
from sluicegate.lab import command, plots_style, scenarios, sweeps
from sluicegate.lab.progress import RunProgress
from sluicegate.lab.scenario import TASKS, Candidate
from sluicegate.lab.tune import command as tune
from sluicegate.lab.tune.defaults import SettingChange, find_field, override_defaults, parse_change
from sluicegate.lab.tune.sweep import (
    Axis,
    Frontier,
    PointResult,
    SettingsSweep,
    find_frontier,
    grid,
    more_is_better,
    run_sweep,
)
from sluicegate.policies.deadline import DeadlineSettings
from tests.lab import tiny

# The share is as the slack's quantile; so a sweep of the quantile moves it.
LIVELY = replace(
    tiny.SCENARIO,
    candidates={
        **tiny.SCENARIO.candidates,
        "ours": Candidate(lambda rig, seed: DeadlineSettings().quantile - seed / 1000, TASKS),
    },
)


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": LIVELY})


def quantile(value: object) -> SettingChange:
    return SettingChange(DeadlineSettings.__module__, "DeadlineSettings", "quantile", value)


def sweep_of(*values: float, **changes: object) -> SettingsSweep:
    made = SettingsSweep(
        name="tiny",
        title="A tiny sweep",
        points=grid([[quantile(value) for value in values]]),
        cases={"tiny": ("2x",)},
        x=Axis("tiny", "2x", "share"),
        y=Axis("tiny", "2x", "p99_ms"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def results_of(*pairs: tuple[float, float], missed: tuple[int, ...] = ()) -> list[PointResult]:
    return [
        PointResult((), x, y, ("a goal",) if at in missed else ())
        for at, (x, y) in enumerate(pairs)
    ]


def lab(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(("tune", *words)))


# The lever.


def test_a_default_is_another_for_a_while_and_then_what_it_was() -> None:
    before = DeadlineSettings().quantile
    with override_defaults([quantile(0.4), quantile(0.5)]):  # the last of them counts
        assert DeadlineSettings().quantile == 0.5
        assert DeadlineSettings(quantile=0.7).quantile == 0.7  # what is set stays set
        with override_defaults([quantile(0.6)]):
            assert DeadlineSettings().quantile == 0.6
        assert DeadlineSettings().quantile == 0.5
    assert DeadlineSettings().quantile == before


def test_a_default_is_put_back_when_a_run_fails() -> None:
    before = DeadlineSettings().quantile
    with pytest.raises(LookupError), override_defaults([quantile(0.5)]):
        raise LookupError
    assert DeadlineSettings().quantile == before


def test_a_default_that_cannot_be_is_refused_by_the_settings_themselves() -> None:
    with override_defaults([quantile(2.0)]), pytest.raises(BadValue, match=r"deadline\.quantile"):
        DeadlineSettings()


def test_a_field_is_found_by_its_policy_and_alone_if_only_one_has_it() -> None:
    assert find_field("deadline.quantile") == (DeadlineSettings, "quantile")
    assert find_field("DeadlineSettings.quantile") == (DeadlineSettings, "quantile")
    assert find_field("furthest_us")[0] is DeadlineSettings
    with pytest.raises(BadValue, match=r"say which policy's: .*hot_key\.name"):
        find_field("name")
    with pytest.raises(BadValue, match="name a field"):
        find_field("deadline.nothing")


def test_values_are_read_as_what_the_default_is() -> None:
    assert parse_change("deadline.quantile", "0.5").value == 0.5
    assert parse_change("deadline.assumed_us", "7").value == 7
    assert parse_change("deadline.slack", "false").value is False
    assert parse_change("queue.standing_us", "none").value is None
    assert parse_change("queue.form", "facebook").value == "facebook"
    assert parse_change("queue.standing_us", "none").text() == "standing_us=none"
    with pytest.raises(BadValue, match="true or false"):
        parse_change("deadline.slack", "perhaps")
    with pytest.raises(BadValue, match="give numbers"):
        parse_change("deadline.quantile", "high")


# The frontier.


def test_who_is_beaten_in_both_is_not_on_the_frontier() -> None:
    results = results_of((1, 9), (2, 4), (5, 5), (9, 1))
    assert find_frontier(results, x_more=False, y_more=False).points == (0, 1, 3)
    assert find_frontier(results, x_more=True, y_more=False).points == (3,)
    assert find_frontier(results, x_more=True, y_more=True).points == (3, 2, 0)


def test_the_knee_is_where_a_little_more_of_one_begins_to_cost_much_of_the_other() -> None:
    results = results_of((0, 100), (1, 20), (2, 15), (50, 10), (100, 0))
    assert find_frontier(results, x_more=False, y_more=False).knee == 2  # 0.02 + 0.15
    assert find_frontier(results_of((5, 5)), x_more=False, y_more=False) == Frontier((0,), 0)


def test_points_that_miss_a_goal_are_left_aside_unless_all_do() -> None:
    pairs = ((1.0, 1.0), (2.0, 3.0), (3.0, 2.0))
    assert find_frontier(results_of(*pairs, missed=(0,)), x_more=False, y_more=False).points == (
        1,
        2,
    )
    assert find_frontier(
        results_of(*pairs, missed=(0, 1, 2)), x_more=False, y_more=False
    ).points == (0,)


def test_what_cannot_be_told_is_never_the_knee() -> None:
    assert find_frontier(results_of((inf, 1), (2, 2)), x_more=False, y_more=False) == Frontier(
        (1,), 1
    )
    assert find_frontier(results_of((inf, 1)), x_more=False, y_more=False) == Frontier((), None)


def test_more_is_better_as_the_goals_say_or_the_name() -> None:
    assert more_is_better(LIVELY, "share")
    assert not more_is_better(LIVELY, "p99_ms")
    assert more_is_better(LIVELY, "success.get")
    assert not more_is_better(LIVELY, "queue_peak")


# The sweep.


def test_every_point_is_played_with_its_defaults_and_its_worst_seed_counts() -> None:
    progress = RunProgress(lambda text: None, live=False)
    points = list(run_sweep(sweep_of(0.85, 0.95, 0.6), range(3), progress))
    assert [one.x for one in points] == [
        pytest.approx(value - 0.002) for value in (0.85, 0.95, 0.6)
    ]
    assert points[0].y == pytest.approx(10 / 0.848)
    assert [one.missed for one in points] == [(), (), ("tiny 2x share", "tiny 2x p99_ms")]


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = Path(tiny.__file__).read_text(encoding="utf-8")
    text = text.replace(
        "good(0.9)", "Candidate(lambda rig, seed: DeadlineSettings().quantile, TASKS)"
    )
    text = text.replace(
        "from sluicegate.lab.goals",
        "from sluicegate.policies.deadline import DeadlineSettings\nfrom sluicegate.lab.goals",
    )
    file.write_text(text, encoding="utf-8")
    where = str(file)
    axes = {"x": Axis(where, "2x", "share"), "y": Axis(where, "2x", "p99_ms")}
    sweep = sweep_of(0.85, 0.95, cases={where: ("2x",)}, **axes)
    quiet = RunProgress(lambda text: None, live=False)
    assert list(run_sweep(sweep, range(2), quiet, jobs=2)) == list(
        run_sweep(sweep, range(2), quiet)
    )


def test_axes_and_cases_that_are_not_there_are_refused() -> None:
    quiet = RunProgress(lambda text: None, live=False)
    for wrong, field in (
        (sweep_of(0.9, x=Axis("nope", "2x", "share")), "axis"),
        (sweep_of(0.9, x=Axis("tiny", "2x", "nothing")), "axis"),
        (sweep_of(0.9, cases={"tiny": ("9x",)}), "case"),
    ):
        with pytest.raises(BadValue) as caught:
            list(run_sweep(wrong, range(1), quiet))
        assert caught.value.field == field
    with pytest.raises(BadValue, match="points"):
        sweep_of(0.9, points=())


# The command.


def test_the_command_prints_every_point_and_names_the_knee(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--set", "deadline.quantile=0.85,0.95,0.5", "--set", "deadline.slack=true,false")
    assert lab("tiny", *words, "--case", "2x", "--against", "share,p99_ms", "--runs", "1") == 0
    output = capsys.readouterr().out
    assert "share of tiny, 2x against p99_ms of tiny, 2x" in output
    rows = [line.split() for line in output.splitlines()[3:-1]]
    assert len(rows) == 6
    assert rows[0] == ["0.85", "True", "0.85", "11.76", "-"]
    assert rows[2] == ["0.95", "True", "0.95", "10.53", "knee", "-"]
    assert rows[4][2:4] == ["0.5", "never"]
    assert output.splitlines()[-1] == "knee: quantile=0.95, slack=True"


def test_the_command_draws_if_it_is_told_where(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "down"
    words = ("--set", "deadline.quantile=0.85,0.95,0.3", "--runs", "1", "--out", str(out))
    assert lab("tiny", *words) == 0
    assert (out / "tiny-sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "tiny-sweep.png" in capsys.readouterr().out


def test_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadValue, match="or a sweep: queue"):
        lab("tiny")
    with pytest.raises(BadValue, match="FIELD=A,B,C"):
        lab("tiny", "--set", "deadline.quantile")
    with pytest.raises(BadValue, match="two figures"):
        lab("tiny", "--set", "deadline.quantile=0.9", "--against", "share")
    monkeypatch.setattr(plots_style, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="lab"):
        lab("tiny", "--set", "deadline.quantile=0.9", "--out", "x")


def test_sweeps_of_ours_name_fields_scenarios_and_cases_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    for name, sweep in sweeps.TABLE.items():
        assert name == sweep.name
        for where, cases in sweep.cases.items():
            scenario = scenarios.find(where)
            assert set(cases) <= set(scenario.rigs)
            scenario.candidate(sweep.candidate or scenario.ours)
        for point in sweep.points:
            for change in point:
                settings, _ = find_field(f"{change.settings}.{change.field}")
                assert settings.__name__ == change.settings
            with override_defaults(point):
                settings()  # each value is one that the settings allow


def test_the_named_sweep_is_what_the_command_plays() -> None:
    parser = ArgumentParser()
    tune.add_arguments(parser)
    assert tune.parse_sweep(parser.parse_args(["queue"])) is sweeps.TABLE["queue"]
