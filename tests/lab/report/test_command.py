from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.lab import charts, jobs, scenarios
from sluicegate.lab.arguments import parse_jobs
from sluicegate.lab.jobs import RunResult, RunSpec
from sluicegate.lab.progress import RunProgress
from sluicegate.lab.report import command
from sluicegate.lab.report import page as report_page
from sluicegate.lab.report import results as report
from sluicegate.lab.report.results import LabReport
from sluicegate.lab.scenario import FailedRun
from sluicegate.lab.text import format_time_left, join_names, slug
from tests.engines.child import until
from tests.lab import tiny

TINY = str(Path(tiny.__file__))
SECOND = 1_000_000


def lab_report(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def quiet() -> RunProgress:
    return RunProgress(lambda text: None, live=False)


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": tiny.SCENARIO})


# What is played.


def test_ours_runs_with_every_seed_and_failing_candidate_with_the_first() -> None:
    (played,) = report.run_report(["tiny"], range(3), 1, quiet()).scenarios
    assert {who: sorted(cases["2x"]) for who, cases in played.figures.items()} == {
        "ours": [0, 1, 2],
        "without": [0],
    }
    assert played.holds()
    assert not played.meets_goals("without")


def test_the_worst_seed_of_ours_is_judged() -> None:
    (played,) = report.run_report(["tiny"], range(3), 1, quiet()).scenarios
    assert [(f.case, f.goal.figure, f.seed) for f in played.judge("ours")] == [
        ("1x", "share", 0),
        ("2x", "share", 0),
        ("2x", "p99_ms", 0),
    ]


def test_who_must_fail_and_does_not_is_tried_with_the_other_seeds_and_then_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    candidates = {**tiny.SCENARIO.candidates, "without": tiny.good(0.95)}
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": replace(tiny.SCENARIO, candidates=candidates)})
    outcome = report.run_report(["tiny"], range(3), 1, quiet())
    (played,) = outcome.scenarios
    assert sorted(played.figures["without"]["1x"]) == [0, 1, 2]
    assert not played.holds()
    assert not outcome.holds()
    assert "without must fail and does not" in "\n".join(report.summary(outcome))


def test_a_missed_goal_is_named_with_what_was_seen_and_forgiven_only_where_it_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    candidates = {**tiny.SCENARIO.candidates, "ours": tiny.good(0.7)}
    missing = replace(tiny.SCENARIO, candidates=candidates)
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": missing})
    outcome = report.run_report(["tiny"], range(2), 1, quiet())
    lines = list(report.summary(outcome))
    assert lines[0].startswith("MISSED")
    assert "2x: share >= 0.8, and it is 0.7 with seed 0" in lines[2]
    assert not outcome.holds()
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": replace(missing, limits="It is small.")})
    outcome = report.run_report(["tiny"], range(2), 1, quiet())
    assert outcome.holds()
    assert not outcome.scenarios[0].holds()


def test_names_are_those_given_or_all_and_files_stand_beside_them() -> None:
    assert report.choose_scenarios([]) == ["tiny"]
    assert report.choose_scenarios(["all", TINY]) == ["tiny", TINY]
    assert report.choose_scenarios(["tiny", "tiny"]) == ["tiny"]


def test_the_numbers_are_kept_for_machines_too() -> None:
    document = report.as_json(report.run_report(["tiny"], range(1), 1, quiet()))
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["scenarios"][0]["figures"]["without"]["1x"]["0"]["p99_ms"] is None


# The page.


class Reader(HTMLParser):
    """What a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert value is not None
            if name == "id":
                self.ids.append(value)
            elif name in {"href", "src", "xlink:href"}:
                self.links.append(value)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "TABLE", {"tiny": tiny.SCENARIO})
        outcome = report.run_report(["tiny"], range(2), 1, quiet())
        return report_page.write_page(outcome, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def page(page_file: Path) -> str:
    return page_file.read_text(encoding="utf-8")


def test_page_loads_no_other_file(page: str) -> None:
    reader = Reader(page)
    assert "http:" not in page
    assert "https:" not in page
    assert "script" not in reader.tags
    assert "link" not in reader.tags
    assert all(link.startswith("#") for link in reader.links)
    assert len(reader.ids) == len(set(reader.ids))
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert reader.tags.count("svg") == len(tiny.SCENARIO.rigs) + 1, "the margins open the page"


def test_the_page_says_what_is_claimed_what_was_seen_and_how_to_see_it_again(page: str) -> None:
    assert "A tiny claim, with &lt;angles&gt; &amp; all" in page
    assert "<angles>" not in page
    assert "&ge;&nbsp;0.8" in page
    assert "a millionth of the real one" in page
    assert "without must fail: it misses 3 of 3 goals." in page
    assert "sluicegate lab run tiny" in page
    assert "without must fail</th>" in page
    assert "seeds 0 to 1" in page


def test_the_page_opens_with_a_picture_and_a_row_of_margins_for_each_claim(page: str) -> None:
    main = page[page.index("<h1>") :]
    order = ["How far each claim is from its bound", "<svg", "Its tightest goal", "<section"]
    places = [main.index(words) for words in order]
    assert places == sorted(places)
    overview = main[places[2] : places[3]]
    assert overview.count("<tr>") == 1, "behind the head one claim, however many goals it has"
    assert "3 of 3" in overview


def test_a_margin_is_of_the_goal_that_is_nearest_to_being_missed() -> None:
    [one] = report.run_report(["tiny"], range(2), 1, quiet()).scenarios
    ours = one.margin("ours")
    assert ours is not None
    rigs = one.scenario.rigs
    used = [each.goal.used(each.worst, rigs[each.case]) for each in one.judge("ours")]
    assert ours.used == max(used) <= 1
    without = one.margin("without")
    assert without is not None
    assert without.used > 1
    assert one.margin("nobody") is None


def test_the_page_shows_limits_and_the_run_that_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = {**tiny.SCENARIO.candidates, "ours": tiny.good(0.7)}
    missing = replace(tiny.SCENARIO, candidates=candidates, limits="It is <small>.")
    monkeypatch.setattr(scenarios, "TABLE", {"tiny": missing})
    text = report_page.render_report(report.run_report(["tiny"], range(2), 1, quiet()))
    assert "It is &lt;small&gt;." in text
    assert "MISSED" in text
    assert "--case 2x --as ours --seed 0 --runs 1" in text
    assert "0 of 1 claims hold" in text


def test_the_page_turns_dark_with_its_reader() -> None:
    text = report_page.render_report(LabReport((), range(1), 1, 0.0, 0))
    assert "prefers-color-scheme: dark" in text
    parts = text.split("@media (prefers-color-scheme: dark)")
    dark = "".join(part.partition("}")[0] for part in parts[1:])
    for name in charts.DARK:
        assert f"--{name}:" in dark
        assert text.count(f"--{name}:") == 2 * dark.count(f"--{name}:")


# Words.


def test_names_are_joined_and_stand_in_files() -> None:
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert slug("Retry storm/2") == "retry-storm-2"
    assert slug("//") == "scenario"


# Progress.


def test_the_time_left_is_that_of_the_runs_left_by_their_like_and_divided_by_the_processes() -> (
    None
):
    written: list[str] = []
    progress = RunProgress(written.append, live=True)
    units = [RunSpec("a", "ours", case, seed) for seed in range(2) for case in ("slow", "quick")]
    progress.expect([unit.kind for unit in units], 2)
    assert progress.left_us() == 0  # nothing is known yet
    progress.record(units[0].kind, 100 * SECOND)
    assert progress.left_us() == (100 + 100 + 100) * SECOND // 2  # the like of it, as far as known
    progress.record(units[1].kind, 10 * SECOND)
    assert progress.left_us() == (100 + 10) * SECOND // 2
    assert "2/4 a ours quick, 55 s left" in written[-1]
    progress.end()
    assert written[-1].strip("\r ") == ""


def test_a_bar_is_not_written_where_nobody_looks() -> None:
    written: list[str] = []
    progress = RunProgress(written.append, live=False)
    progress.expect([("a", "ours", "x")], 1)
    progress.record(("a", "ours", "x"), 5)
    progress.end()
    assert written == []


def test_off_a_terminal_a_long_play_says_a_line_for_each_tenth() -> None:
    written: list[str] = []
    progress = RunProgress(written.append, live=False)
    units = [RunSpec("a", "ours", "x", seed) for seed in range(40)]
    progress.expect([unit.kind for unit in units], 1)
    for unit in units:
        progress.record(unit.kind, SECOND)
    assert len(written) == 10
    assert written[0] == "4/40 a ours x, 36 s left\n"


def test_times_are_said_in_the_unit_that_fits() -> None:
    assert format_time_left(99 * SECOND) == "99 s"
    assert format_time_left(150 * SECOND) == "3 min"
    assert format_time_left(7_800 * SECOND) == "2 h 10 min"


# Jobs.


def test_two_processes_find_what_one_finds() -> None:
    units = [
        RunSpec(TINY, who, case, 1, True) for who in ("ours", "without") for case in ("1x", "2x")
    ]
    here = {ran.spec: (ran.figures, ran.curves) for ran in jobs.run_all(units, 1)}
    there = {ran.spec: (ran.figures, ran.curves) for ran in jobs.run_all(units, 2)}
    assert here == there
    assert len(here[units[0]][1]["good_per_s"]) == jobs.POINTS_MAX


def test_a_bug_in_a_child_is_told_with_its_trace_and_the_command_that_repeats_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    text = Path(TINY).read_text(encoding="utf-8")
    text = text.replace('"real": Candidate(lambda rig, seed: 0.85)', '"real": Candidate(bad)')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(FailedRun) as caught:
        list(jobs.run_all([RunSpec(str(file), "real", "2x", 4)], 2))
    error = r"mine\.py, line \d+: LookupError: no such thing; repeat it: sluicegate lab run "
    assert re.match(error, str(caught.value))
    assert str(caught.value).endswith("mine.py --case 2x --as real --seed 4 --runs 1")
    assert "in bad" in caught.value.__notes__[0]


def test_a_child_that_dies_is_told_and_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = Path(TINY).read_text(encoding="utf-8").replace("good(0.2)", "Candidate(dies)")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Unavailable, match=r"ran without in .*mine\.py"):
        list(jobs.run_all([RunSpec(str(file), "without", "1x", 0)], 2))


def test_ctrl_c_ends_the_children_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = Path(TINY).read_text(encoding="utf-8")
    text = text.replace("good(0.9)", "Candidate(sleeps)")
    file.write_text(text, encoding="utf-8")
    words = [sys.executable, "-m", "sluicegate.cli", "lab", "run", str(file), "--jobs", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as run:
        try:
            children = [int(line) for line in read_lines(run, lines=2)]
            run.send_signal(signal.SIGINT)
            assert run.wait(timeout=30) == 130
        finally:
            run.kill()
    until(lambda: not any(alive(pid) for pid in children), "the end of the children")


def read_lines(run: subprocess.Popen[bytes], *, lines: int) -> list[bytes]:
    """What a process has printed, once it is so many lines."""
    assert run.stdout is not None
    text = b""
    while text.count(b"\n") < lines:
        ready, _, _ = select.select([run.stdout], [], [], 60)
        assert ready, "it says nothing"
        more = os.read(run.stdout.fileno(), 1_000)
        assert more, "it has ended"
        text += more
    return text.split()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_runs_that_end_in_any_order_make_the_same_trial() -> None:
    ended = [
        RunResult(RunSpec("tiny", "ours", case, seed), {"share": 1.0, "p99_ms": 1.0}, {}, 0)
        for case in ("1x", "2x")
        for seed in range(3)
    ]
    trial, again = (jobs.collect_results(tiny.SCENARIO, of) for of in (ended, ended[::-1]))
    assert json.dumps(trial.figures) == json.dumps(again.figures)  # in the same order too
    assert trial.judge("ours") == again.judge("ours")


def test_jobs_are_a_number_or_auto() -> None:
    assert parse_jobs("3") == 3
    assert parse_jobs("auto") >= 1
    for wrong in ("0", "-1", "x", "9999"):
        with pytest.raises(BadValue, match="--jobs"):
            parse_jobs(wrong)


def test_curves_are_thinned_to_their_ends() -> None:
    points = [(float(at), 0.0) for at in range(1_234)]
    curve = jobs.thin_out(points)
    assert len(curve) == jobs.POINTS_MAX
    assert (curve[0], curve[-1]) == (points[0], points[-1])
    assert jobs.thin_out(points[:9]) == points[:9]


# What is missing.


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadValue, match="--out"):
        lab_report("--out", str(tmp_path / "file"))


def test_nothing_of_the_report_is_imported_with_sluicegate() -> None:
    looked = "'sluicegate.lab.jobs' in sys.modules"
    code = f"import sys, sluicegate, sluicegate.lab.command; print({looked})"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False"]
