from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.hunt import command, search
from sluicegate.lab.hunt.draws import draw_setup
from sluicegate.lab.hunt.record import Violation
from sluicegate.lab.hunt.setup import Setup, read_file, render
from sluicegate.testing import HandClock
from tests.lab.hunt.test_stages import SMALL

BROKEN = [Violation("bounded", "it was not")]


def hunt(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def odd_seeds_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setup of an odd seed is broken, as long as it has more than one load."""

    def violations_of(setup: Setup) -> list[Violation]:
        return BROKEN if setup.seed % 2 else []

    monkeypatch.setattr(search, "violations_of", violations_of)


def test_seeds_that_break_nothing_end_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "violations_of", lambda setup: [])
    assert hunt("--seeds", "12", "--seed", "3") == 0
    assert capsys.readouterr().out == "12 seeds, and nothing broke\n"


@pytest.mark.usefixtures("odd_seeds_break")
def test_a_finding_says_how_to_repeat_it_and_is_written_down_small(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert hunt("--seeds", "8", "--seed", "4", "--out", str(tmp_path)) == 1
    output = capsys.readouterr().out
    assert output.count("BROKEN  bounded: it was not") == search.SHRUNK_MAX
    assert "repeat: sluicegate lab hunt --seed 5 --seeds 1" in output
    assert f"sluicegate lab hunt --again {tmp_path / 'bounded-5.json'}" in output
    assert "8 seeds; broken:\n  bounded: 4 times, by seed 5, 7, 9, 11" in output
    small = read_file(tmp_path / "bounded-5.json")
    assert small.seed == 1, "the smallest that still breaks"
    assert len(small.loads) == 1
    assert small.span_ms < draw_setup(5).span_ms


@pytest.mark.usefixtures("odd_seeds_break")
def test_an_interrupt_tells_what_was_found_so_far(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(seeds: object, jobs: int) -> object:
        yield 7, BROKEN
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "play_seeds", played)
    assert hunt("--out", str(tmp_path)) == 1
    output = capsys.readouterr().out
    assert "stopped" in output
    assert "1 seed; broken:\n  bounded: 1 time, by seed 7" in output


def test_a_file_is_played_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    file.write_text(render(SMALL["cluster"]), encoding="utf-8")
    assert hunt("--again", str(file)) == 0
    assert "nothing breaks: stage cluster, seed 1" in capsys.readouterr().out


def test_the_time_that_was_given_ends_it() -> None:
    clock = HandClock()
    seeds = search.until(range(10), clock, minutes=1)
    assert [next(seeds), next(seeds)] == [0, 1]
    clock.advance(s=60)
    assert list(seeds) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--seeds", "0"),
        ("--seeds", "many"),
        ("--seed", "-1"),
        ("--jobs", "0"),
        ("--minutes", "soon"),
        ("--minutes", "0"),
        ("--again", "nowhere.json"),
    ],
)
def test_flags_that_cannot_be_are_named(words: tuple[str, str]) -> None:
    with pytest.raises(BadValue, match=words[0]):
        hunt(*words)


def test_a_file_that_is_no_finding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text("{")
    with pytest.raises(BadValue, match=r"mine\.json: setup: .*send JSON"):
        hunt("--again", str(file))
