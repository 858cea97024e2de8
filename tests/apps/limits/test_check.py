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
        [rules.a]
        key = "everyone"
        limit = "5/s"
        algorithm = "fixed_window"
        failure = "local"
        local_share = 0.5
        lease = "10%"
        stop = true
        [rules.b]
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
    assert f"{bad}: line 7: rules.login.limit: '5/fortnight' cannot be used" in output
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
    assert [(one["field"], one["line"]) for one in second["problems"]] == [("rules.login.limit", 7)]
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


def test_rules_of_a_service_are_read_as_the_service_reads_them(capsys: Out) -> None:
    rules = Path(__file__).parents[3] / "deploy" / "limiter" / "rules"
    native, mesh = sorted(map(str, rules.iterdir()))
    assert limits("check", "--strict", native, mesh, str(rules)) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"{native}: 7 rules of a service (native), version" in shown[0]
    assert "login-minute /login user 12/minute cells 1 by sliding_window -" in shown
    assert "rest-trial every path user 360/minute cells 1 by sliding_window shadow" in shown
    assert any(line.startswith("playback-android") and "CRITICAL" in line for line in shown)
    named = "edge/path=%2Flogin/remote_address path=/login, remote_address remote_address"
    assert f"{named} 10/minute by sliding_window -" in shown
    assert any(
        line.startswith(f"{rules}: 10 rules of a service (native and envoy)") for line in shown
    )


def test_a_service_file_that_is_wrong_is_told_in_the_words_of_its_format(
    tmp_path: Path, capsys: Out
) -> None:
    native = written(tmp_path, "version: 1\nrules:\n  - {rule_id: a, limit: x}\n", "native.yaml")
    mesh = written(tmp_path, "domain: shop\ndescriptors: [{value: x}]\n", "mesh.yaml")
    assert limits("check", native, mesh) == 1
    told = capsys.readouterr().out
    assert f"{native}: line 3: rules[0]" in told or "rules[0].limit" in told
    assert "name the key of this descriptor" in told
    assert "there is no such field" not in told


def test_rows_next_to_match_rules_are_explained(tmp_path: Path, capsys: Out) -> None:
    row = "  play: {resource_path: /play, limit: 5, window: 1m, per: resource}\n"
    file = written(tmp_path, RULES + row)
    assert limits("check", file) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith(f"{file}: 5 rules, version ")
    assert "play /play resource 5/minute cells 1 by sliding_window -" in lines
    assert limits("check", "--format", "json", file) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["format"], len(found["rules"]), found["rules"][4]["name"]) == ("web", 5, "play")


def test_programs_are_told_the_format_of_each_file(tmp_path: Path, capsys: Out) -> None:
    mesh = written(
        tmp_path,
        "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 0}}]\n",
        "mesh.yaml",
    )
    assert limits("check", "--format", "json", written(tmp_path), mesh) == 0
    web, service = json.loads(capsys.readouterr().out)
    assert (web["format"], service["format"]) == ("web", "envoy")
    assert service["rules"] == [
        {
            "name": "shop/user",
            "matches": "user",
            "key": "user",
            "limits": ["nothing passes"],
            "terms": "-",
        }
    ]
