from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.apps.limits.asking import RULES, limits, written

Out = pytest.CaptureFixture[str]


def test_a_file_is_told_in_words(tmp_path: Path, capsys: Out) -> None:
    file = written(tmp_path)
    assert limits("check", file) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{file}: 4 rules, version ")
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "rule matches counted by limits terms",
        "login POST /login address 5/minute failure closed",
        (
            "api /api/** with header x-plan free user and path, or address "
            "10/second burst 20; 1000/hour failure closed, cost header x-cost, at most 10"
        ),
        "trial /login user, or address 3/minute shadow, failure closed",
        "health /health - not limited -",
    ]
    starts = {line.index(word) for line, word in zip(lines[2:4], ("matches", "POST"), strict=True)}
    assert len(starts) == 1


def test_other_algorithms_and_terms_are_told(tmp_path: Path, capsys: Out) -> None:
    file = written(
        tmp_path,
        """
        version = 1
        [limits.a]
        key = "everyone"
        limit = "5/s"
        algorithm = "fixed_window"
        failure = "local"
        local_share = 0.5
        lease = "10%"
        stop = true
        [limits.b]
        key = "address"
        limit = "5/s"
        count_refused = true
        mode = "off"
        """,
        "rules.toml",
    )
    assert limits("check", file) == 0
    output = capsys.readouterr().out
    assert "every path  everyone    5/second by fixed_window" in output
    assert "failure local, local share 0.5, lease 10%, stop" in output
    assert "off, refused count" in output


def test_what_is_odd_is_advice_and_strict_minds_it(tmp_path: Path, capsys: Out) -> None:
    file = written(tmp_path, RULES.replace("closed", "open"))
    assert limits("check", file) == 0
    output = capsys.readouterr().out
    assert "\nworth a look\n  login: while a remote store does not answer, /login is not" in output
    assert limits("check", "--strict", file) == 1
    assert limits("check", "--strict", written(tmp_path, RULES)) == 0


def test_what_is_wrong_is_told_for_every_file(tmp_path: Path, capsys: Out) -> None:
    good = written(tmp_path)
    bad = written(tmp_path, RULES.replace("5/minute", "5/fortnight"), "bad.yaml")
    assert limits("check", bad, good, str(tmp_path / "nope.toml")) == 1
    output = capsys.readouterr().out
    assert f"{bad}: line 7: limits.login.limit: '5/fortnight' cannot be used" in output
    assert f"{good}: 4 rules" in output
    assert "nope.toml is unavailable: No such file" in output


def test_a_missing_package_is_told_with_its_command(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert limits("check", written(tmp_path)) == 1
    assert "pip install '.[rules]'" in capsys.readouterr().out


def test_programs_are_told_the_same(tmp_path: Path, capsys: Out) -> None:
    good = written(tmp_path, RULES.replace("closed", "open"))
    bad = written(tmp_path, RULES.replace("5/minute", "5/fortnight"), "bad.yaml")
    assert limits("check", "--format", "json", good, bad, str(tmp_path / "x.yaml")) == 1
    first, second, third = json.loads(capsys.readouterr().out)
    assert first["usable"]
    assert first["rules"][1] == {
        "name": "api",
        "matches": "/api/** with header x-plan free",
        "exempt": False,
        "key": ["user", "path"],
        "or_key": ["address"],
        "limits": ["10/second burst 20", "1000/hour"],
        "mode": "enforce",
        "terms": "failure open, cost header x-cost, at most 10",
        "stop": False,
    }
    assert (first["rules"][3]["exempt"], first["rules"][3]["limits"]) == (True, [])
    assert [(one["rule"], one["about"]) for one in first["advice"]] == [
        ("login", "open_to_guessing")
    ]
    assert not second["usable"]
    assert (second["version"], second["rules"], second["problems_left_out"]) == (None, [], 0)
    assert [(one["field"], one["line"]) for one in second["problems"]] == [
        ("limits.login.limit", 7)
    ]
    assert "No such file" in third["problems"][0]["words"]
    toml = written(tmp_path, 'version = 1\nlimits = "x"', "bad.toml")
    assert limits("check", "--format", "json", toml) == 1
    (problem,) = json.loads(capsys.readouterr().out)[0]["problems"]
    assert (problem["field"], problem["line"]) == ("limits", None)  # TOML does not tell


def test_asked_wrongly_is_two(tmp_path: Path, capsys: Out) -> None:
    assert limits() == 2
    assert limits("check") == 2
    assert limits("chekc", "x") == 2
    assert limits("check", "--format", "xml", written(tmp_path)) == 2
    errors = capsys.readouterr().err.splitlines()
    assert all(line.startswith("sluicegate: ") for line in errors)
    assert len(errors) == 4


@pytest.mark.parametrize("verb", ["check", "try"])
def test_help_has_examples(verb: str, capsys: Out) -> None:
    assert limits(verb, "--help") == 0
    output = capsys.readouterr().out
    assert f"examples:\n  sluicegate limits {verb} rules.yaml" in output
    assert "exit code: 0" in output
    assert limits("--help") == 0
    assert f"sluicegate limits {verb} " in capsys.readouterr().out


def test_the_glass_is_a_verb_of_it(tmp_path: Path, capsys: Out) -> None:
    assert limits("glass", "list", "--store", f"file:{tmp_path}/glass.json") == 0
    assert limits("glass", "--help") == 0
    assert "sluicegate limits glass break" in capsys.readouterr().out
