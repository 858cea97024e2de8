"""The command, as a developer runs it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import command
from sluicegate.lab.zoo import sensitivity

SMALL = ("--seed", "7", "--shapes", "service: stream; service: patience of 0.5 x")


def zoo(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(("zoo", *words)))


def test_list_prints_names_and_plays_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo("--list", "--shapes", "llm") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "service: llm 3 s" in lines


def test_table_shows_limits_apart(capsys: pytest.CaptureFixture[str]) -> None:
    zoo(*SMALL, "--candidates", "lifo")
    out = capsys.readouterr().out
    shapes, _, rest = out.partition("LIMITS")
    assert "service: stream" in shapes
    assert "patience of 0.5 x" not in shapes
    assert "patience below 1.6 x the work" in rest


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_json_repeats_with_its_seed(capsys: pytest.CaptureFixture[str], jobs: str) -> None:
    words = ("--seed", "7", "--shapes", "service: sse", "--candidates", "nothing", "--json")
    code = zoo(*words, "--jobs", jobs)
    found = json.loads(capsys.readouterr().out)
    assert found["seed"] == 7
    (row,) = found["rows"]
    assert row["useful"]["nothing"] == 1
    assert code == (0 if all(bar["met"] for bar in row["bars"]) else 1)


def test_picture_is_an_svg(tmp_path: Path) -> None:
    path = tmp_path / "zoo.svg"
    zoo(*SMALL, "--candidates", "nothing", "--picture", str(path))
    assert path.read_text(encoding="utf-8").startswith("<svg xmlns=")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--shapes", "no such thing"), "--list"),
        (("--candidates", "fifo"), "gradient2"),
        (("--seed", "-1"), "whole number"),
    ],
)
def test_bad_value_names_its_fix(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(BadValue, match=problem):
        zoo(*words)


def test_sensitivity_plays_each_registered_constant_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = SimpleNamespace(
        name="io", module="sluicegate.lab.zoo.service", attribute="LOOP_IO_US", why="a test"
    )
    monkeypatch.setattr(sensitivity, "registered", lambda: [fake])
    words = ("--seed", "7", "--shapes", "service: cpu in the loop", "--candidates", "nothing")
    zoo(*words, "--sensitivity")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    tried = [row[:4] for row in rows if row[:1] == ["io"]]
    assert tried == [["io", "5000", "2500", "1"], ["io", "5000", "10000", "1"]]
