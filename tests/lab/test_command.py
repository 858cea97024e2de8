from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import replace
from math import inf
from pathlib import Path
from shlex import split

import pytest

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import Admission
from sluicegate.contracts.request import Request
from sluicegate.lab import command, scenarios
from sluicegate.lab.arguments import parse_seeds
from sluicegate.lab.goals import Goal
from sluicegate.lab.jobs import RunSpec, run_groups
from sluicegate.lab.measures import figures
from sluicegate.lab.progress import ProgressBar, RunProgress
from sluicegate.lab.rig import Rig
from sluicegate.lab.scenario import FailedRun, Figures
from sluicegate.lab.scenario import Scenario as AScenario
from sluicegate.lab.station_candidates import (
    ALL,
    StationCandidate,
    policy_candidate,
)
from sluicegate.lab.text import format_number
from sluicegate.lab.world import World
from tests.lab import tiny
from tests.lab.rigs import small

TINY = str(Path(tiny.__file__))

SMALL = AScenario(
    number=99,
    name="small",
    title="A small overload",
    why="It is quick.",
    rigs={"2x": small(2), "4x": small(4)},
    candidates={name: ALL[name] for name in ("queue", "fifo", "bounded-fifo")},
    ours="queue",
    must_fail=("fifo",),
    goals=(
        Goal(figure="goodput", at_least=0.95),
        Goal(figure="p99_ms", at_most=500, cases=("4x",)),
    ),
    measure=figures,
    columns=("goodput", "p99_ms", "refused_p99_ms", "queue_peak"),
    scale="one tenth of the time",
    own_settings={"places 3": "a test has its own"},
)


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "TABLE", {"small": SMALL})


def lab(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_the_list_says_what_there_is_who_contends_and_who_must_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab("list") == 0
    output = capsys.readouterr().out
    assert "99  small: A small overload" in output
    assert "cases 2x, 4x; ours is queue" in output
    assert "goals goodput >= 0.95; p99_ms <= 500 at 4x" in output
    assert "fifo must fail" in output


def test_a_run_prints_a_row_for_each_goal_and_ends_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab("run", "small", "--runs", "2") == 0
    output = capsys.readouterr()
    assert output.out.count("met ") == 3
    assert "seeds 0 to 1" in output.out
    assert "one tenth of the time" in output.out
    assert "own setting: places 3: a test has its own" in output.out
    assert "repeat" not in output.out
    assert output.err == ""


def test_each_claim_has_the_number_of_seeds_that_meet_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab("run", TINY, "--as", "without", "--seed", "590", "--seeds", "20") == 1
    output = capsys.readouterr()
    rows = [line for line in output.out.splitlines() if "of 20" in line]
    assert [row.split()[0] for row in rows] == ["MISSED"] * 3
    assert [row.split()[-3:] for row in rows] == [
        ["10", "of", "20"],
        ["10", "of", "20"],
        ["0", "of", "20"],
    ]
    assert "40/40" in output.err, "long work shows its progress off a terminal"


def test_a_run_that_misses_prints_the_command_that_repeats_it_and_that_tells_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab("run", "small", "--as", "fifo", "--runs", "2", "--seed", "3") == 1
    output = capsys.readouterr().out
    rows = [line.removesuffix("0 of 2") for line in output.splitlines() if "MISSED" in line]
    repeats = [line for line in output.splitlines() if line.startswith("repeat: sluicegate lab ")]
    assert len(rows) == len(repeats) == 2
    assert lab(*repeats[-1].removeprefix("repeat: sluicegate lab ").split()) == 1
    output = capsys.readouterr().out
    again = [line.removesuffix("0 of 1") for line in output.splitlines() if "MISSED" in line]
    assert rows[-1].split() in [line.split() for line in again]


def test_a_comparison_has_a_table_for_each_case_and_a_verdict_for_each_candidate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab("compare", "small", "--with", "fifo,bounded-fifo", "--runs", "1") == 0
    output = capsys.readouterr().out
    assert output.count("goodput  p99_ms  refused_p99_ms  queue_peak") == 2
    assert sum(line.startswith("  bounded-fifo ") for line in output.splitlines()) == 2
    assert "queue meets every goal" in output
    assert "fifo misses a goal" in output


def test_a_comparison_leaves_out_what_a_case_does_not_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(rig: tiny.Tiny, result: float) -> Figures:
        figures = dict(tiny.measure(rig, result))
        if rig.load > 1:
            del figures["p99_ms"]
        return figures

    scenario = replace(tiny.SCENARIO, measure=measure, goals=tiny.SCENARIO.goals[:1])
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": scenario})
    lab("compare", "tiny", "--with", "other", "--runs", "1")
    output = capsys.readouterr().out
    assert [line.split() for line in output.splitlines() if "share" in line] == [
        ["share", "p99_ms"],
        ["share"],
    ]


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadValue, match="give one of small"):
        lab("run", "nope")
    with pytest.raises(BadValue, match="queue, fifo"):
        lab("run", "small", "--as", "nobody")
    with pytest.raises(BadValue, match="2x, 4x"):
        lab("run", "small", "--case", "9x")
    with pytest.raises(BadValue, match="--with"):
        lab("compare", "small", "--with", " , ")


@pytest.mark.parametrize(("seed", "runs"), [("-1", "1"), ("x", "1"), ("0", "0"), ("0", "9" * 9)])
def test_seeds_that_cannot_be_run_are_refused(seed: str, runs: str) -> None:
    with pytest.raises(BadValue):
        parse_seeds(seed, runs)


def test_a_scenario_of_ones_own_is_run_by_the_path_of_its_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lab("run", TINY, "--runs", "2") == 0
    assert "A tiny claim" in capsys.readouterr().out
    assert lab("run", TINY, "--as", "without", "--case", "2x", "--runs", "1") == 1
    repeat = capsys.readouterr().out.splitlines()[-1].removeprefix("repeat: sluicegate lab ")
    assert lab(*split(repeat)) == 1
    assert lab("compare", TINY, "--with", "other", "--runs", "1") == 0


def test_all_scenarios_are_run_one_after_the_other_and_one_that_misses_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = replace(tiny.SCENARIO, name="worse", title="A worse one", ours="without", limits="Why.")
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": tiny.SCENARIO, "worse": worse})
    assert lab("run", "all", "--runs", "2") == 1
    output = capsys.readouterr().out
    assert output.index("A tiny claim") < output.index("A worse one")
    assert "limits: Why." in output
    head, *rows = [line.split() for line in output.splitlines()[-3:]]
    assert head[:2] == ["held", "of"]
    assert rows[0][:4] == ["tiny", "2", "2", "0.926"]
    assert rows[0][4:] == ["p99_ms", "<=", "12", "at", "2x:", "11.11", "(seed", "0)"]
    assert rows[1][:4] == ["worse", "0", "2", "inf"]
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": tiny.SCENARIO})
    assert lab("run", "all", "--runs", "1") == 0
    with pytest.raises(BadValue, match="--as or --case"):
        lab("run", "all", "--case", "2x")


def test_a_claim_is_held_by_the_seeds_that_meet_all_of_it_and_is_printed_for_programs_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("run", TINY, "--as", "without", "--seed", "590", "--seeds", "20")
    assert lab(*words, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["seeds"] == [590, 609]
    [claim] = found["claims"]
    assert (claim["scenario"], claim["candidate"]) == ("tiny", "without")
    assert (claim["held"], claim["runs"]) == (0, 20)
    assert [one["held"] for one in claim["goals"]] == [10, 10, 0]
    assert claim["goals"][0]["used"] == pytest.approx((1 - 0.79) / (1 - 0.8))
    assert (claim["goals"][0]["worst"], claim["goals"][0]["seed"]) == (0.79, 590)


def test_two_processes_print_what_one_prints(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", TINY, "--with", "without,other", "--runs", "2")
    lab(*words)
    alone = capsys.readouterr().out
    lab(*words, "--jobs", "2")
    assert capsys.readouterr().out == alone


@pytest.mark.parametrize(
    ("text", "remedy"), [("", "SCENARIO = Scenario"), ("SCENARIO = 3\n", "SCENARIO = Scenario")]
)
def test_a_file_without_a_scenario_is_refused(tmp_path: Path, text: str, remedy: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(BadValue, match=remedy):
        lab("run", str(file))
    with pytest.raises(BadValue, match="file that is there"):
        lab("run", str(tmp_path / "other.py"))


def test_a_file_is_read_again_when_it_has_changed_and_may_import_what_stands_beside_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "beside_it.py").write_text("from tests.lab.tiny import SCENARIO as FOUND\n")
    file = tmp_path / "mine.py"
    file.write_text("from beside_it import FOUND as SCENARIO\n")
    first = scenarios.load(str(file))
    assert scenarios.load(str(file)) is first
    file.write_text(
        "from dataclasses import replace\nfrom beside_it import FOUND\n"
        "SCENARIO = replace(FOUND, title='Another')\n"
    )
    os.utime(file, ns=(1, 1))
    assert scenarios.load(str(file)).title == "Another"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import none_such\n", "mine.py, line 1: ModuleNotFoundError: No module named 'none_such'"),
        ("x = 1\ny = x / 0\n", "mine.py, line 2: ZeroDivisionError: division by zero"),
        ("\nif (:\n", "mine.py, line 2: SyntaxError: invalid syntax"),
        ("import beside_mine\n", "beside_mine.py, line 2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(7)\n", "mine.py, line 1: SystemExit: 7"),
        (
            "from sluicegate.lab.goals import Goal\nGoal(figure='x')\n",
            "line 2: goal.x: None cannot",
        ),
        ("x = 1\n", r"end the file with SCENARIO = Scenario\(...\)"),
    ],
)
def test_a_mistake_in_a_file_is_named_by_its_line(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "beside_mine.py").write_text("x = 0\ny = 1 / x\n")
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(BadValue, match=error):
        scenarios.load(str(file))


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("raised", ["KeyError('k')", "SystemExit(3)"])
def test_a_run_that_fails_in_a_file_is_named_by_its_line_and_can_be_repeated(
    tmp_path: Path, jobs: str, raised: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\nfrom tests.lab.tiny import SCENARIO as FOUND\n"
        f"def measure(rig, result):\n    raise {raised}\n"
        "SCENARIO = replace(FOUND, measure=measure)\n"
    )
    name, _, text = raised.rstrip(")").partition("(")
    error = rf"mine\.py, line 4: {name}: {text}; repeat it: sluicegate lab run .*mine\.py --case"
    with pytest.raises(FailedRun, match=error):
        lab("run", str(file), "--runs", "1", "--jobs", jobs)


@pytest.mark.parametrize("value", ["'many'", "None"])
def test_a_goal_whose_figure_is_no_number_says_what_there_is(tmp_path: Path, value: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\nfrom tests.lab.tiny import SCENARIO as FOUND\n"
        "from sluicegate.lab.goals import Goal\n"
        f"SCENARIO = replace(FOUND, goals=(Goal(figure='x', at_least=1),),"
        f" measure=lambda rig, result: {{'x': {value}, 'y': 1.0}})\n"
    )
    with pytest.raises(BadValue, match=r"goal\.x: .*return a number of that name; it returns x, y"):
        lab("run", str(file), "--runs", "1")


def test_the_report_is_a_verb_with_a_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--runs", "1", "--jobs", "1", "--out", str(tmp_path / "out"))
    assert lab("report", TINY, *words) == 0
    output = capsys.readouterr().out
    assert "tiny: 3 of 3 goals" in output
    assert (tmp_path / "out" / "report.html").is_file()
    assert (tmp_path / "out" / "report.json").is_file()


def test_every_verb_has_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("run", "compare", "report", *(verb.name for verb in command.VERBS)):
        with pytest.raises(SystemExit) as ended:
            lab(verb, "--help")
        assert ended.value.code == 0
        assert "examples:" in capsys.readouterr().out


def test_the_bar_grows_on_a_terminal_and_is_gone_at_the_end() -> None:
    written: list[str] = []
    progress = ProgressBar(written.append, live=True).show
    progress(1, 4, "queue 2x seed 0")
    assert written[-1].startswith("\r[######..................] 1/4 queue 2x seed 0")
    progress(4, 4, "queue 2x seed 0")
    assert written[-1].strip("\r ") == ""
    silent = ProgressBar(written.append, live=False).show
    silent(1, 4, "queue")
    assert len(written) == 2


def test_a_policy_that_never_answers_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Greedy:
        """Goes round in circles at one instant."""

        async def admit(self, request: Request, clock: Clock) -> Admission:
            while True:
                await asyncio.sleep(0)

    def greedy(rig: Rig, world: World) -> Greedy:
        return Greedy()

    candidates = {**SMALL.candidates, "greedy": policy_candidate(greedy)}
    monkeypatch.setattr(
        scenarios, "TABLE", {"small": replace(SMALL, candidates=candidates, ours="greedy")}
    )
    with pytest.raises(FailedRun) as caught:
        lab("run", "small", "--seed", "5", "--runs", "1")
    repeat = "repeat it: sluicegate lab run small --case 2x --as greedy --seed 5 --runs 1"
    assert str(caught.value).endswith(repeat)


def test_a_bug_in_a_candidate_keeps_its_traceback_and_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(rig: Rig, world: World) -> object:
        raise LookupError("a bug")

    candidates: dict[str, StationCandidate] = dict(SMALL.candidates)
    candidates["broken"] = policy_candidate(broken)  # type: ignore[arg-type]
    monkeypatch.setattr(scenarios, "TABLE", {"small": replace(SMALL, candidates=candidates)})
    with pytest.raises(LookupError) as caught:
        lab("run", "small", "--as", "broken", "--case", "4x", "--runs", "1")
    assert "--case 4x --as broken --seed 0" in caught.value.__notes__[-1]


def test_progress_shows_from_the_beginning_and_is_cleared_when_a_run_fails() -> None:
    written: list[str] = []

    progress = RunProgress(written.append, live=True)
    with pytest.raises(BadValue):
        list(run_groups([[RunSpec("small", "nobody", "2x", 0)]], progress, 1))
    assert written[0].startswith("\r[........................] 0/1 ")
    assert written[-1] == "\r" + " " * (len(written[0]) - 1) + "\r"


def test_numbers_are_short_and_never_in_powers_of_ten() -> None:
    assert format_number(115_756.0) == "115,756"
    assert format_number(0.98765) == "0.9877"
    assert format_number(0.00006) == "0.00006"
    assert format_number(inf) == "never"


def test_the_scenarios_are_listed_without_any_extra() -> None:
    program = (
        "import sys; sys.modules['hiredis'] = None; sys.argv[1:] = ['lab', 'list']; "
        "from sluicegate.cli import main; sys.exit(main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "overload" in ended.stdout
