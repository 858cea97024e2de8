from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.apps.limits.asking import RULES, limits, written

Out = pytest.CaptureFixture[str]
LOGIN = '{"path": "/login", "method": "post", "user": "ann"}'


def steps(capsys: Out, *arguments: str) -> list[str]:
    assert limits("try", *arguments) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_it_shows_the_rules_their_keys_and_what_they_decide(tmp_path: Path, capsys: Out) -> None:
    lines = steps(capsys, written(tmp_path), "--request", LOGIN, "--times", "6", "--every", "1s")
    assert lines[:5] == [
        "POST /login",
        "",
        "rule key cost limits terms",
        "login address:127.0.0.1 1 5/minute failure closed",
        "trial user:ann 1 3/minute shadow, failure closed",
    ]
    assert lines[-3] == (
        "6 5 s Refused by rule 'login'. The limit for this key is spent. Ask again in 7 s."
    )
    assert lines[-1] == "5 of 6 requests admitted."
    assert any("rule 'trial' is only tried out" in line for line in lines)


def test_of_many_the_turns_are_shown(tmp_path: Path, capsys: Out) -> None:
    lines = steps(capsys, written(tmp_path), "--request", LOGIN, "--times", "100")
    numbers = [line.split()[0] for line in lines[6:-2] if line and line[0].isdigit()]
    assert numbers == ["1", "6", "100"]
    assert lines[-1] == "5 of 100 requests admitted; shown are those where the answer turns."
    many = steps(
        capsys, written(tmp_path), "--request", LOGIN, "--times", "1000", "--every", "1 second"
    )
    assert len(many) < 60
    assert many[-1].startswith("88 of 1,000 requests admitted")


def test_the_header_says_the_cost_and_the_plan(tmp_path: Path, capsys: Out) -> None:
    request = {"path": "/api/x?y=1", "headers": {"X-Plan": "free", "X-Cost": "7"}, "user": "ann"}
    lines = steps(capsys, written(tmp_path), "--request", json.dumps(request))
    assert lines[0] == "GET /api/x"
    assert lines[3].startswith("api user:ann|path:/api/x 7 10/second")
    assert "13 remaining" in lines[5]


def test_row_is_shown_with_its_key(tmp_path: Path, capsys: Out) -> None:
    row = "  play: {resource_path: /play, limit: 5, window: 1m}\n"
    request = '{"path": "/play", "user": "ann"}'
    lines = steps(capsys, written(tmp_path, RULES + row), "--request", request, "--times", "6")
    assert lines[3] == "play ann 1 5/minute cells 1 by sliding_window -"
    assert "Refused by rule 'play'" in lines[-3]
    assert lines[-1] == "5 of 6 requests admitted."


def test_what_is_not_limited_is_told_why(tmp_path: Path, capsys: Out) -> None:
    file = written(tmp_path, RULES.replace("key: [user, path]", "key: user\n    or_key: skip"))
    assert steps(capsys, file, "--request", '{"path": "/x"}')[-1] == (
        "No rule matches: it is not limited."
    )
    assert steps(capsys, file, "--request", '{"path": "/health"}')[-1] == (
        "Exempt by 'health': it is not limited."
    )
    lines = steps(capsys, file, "--request", '{"path": "/api/x", "headers": {"x-plan": "free"}}')
    assert lines[3].startswith("api none: not limited by this rule 1 ")
    assert lines[-1] == "No rule applies: it is not limited."


def test_a_request_may_come_from_a_file_or_from_standard_input(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = written(tmp_path, LOGIN, "login.json")
    assert steps(capsys, written(tmp_path), "--request", f"@{request}")[0] == "POST /login"
    monkeypatch.setattr("sys.stdin", io.StringIO(LOGIN))
    assert steps(capsys, written(tmp_path), "--request", "-")[0] == "POST /login"


def test_programs_are_told_the_same(tmp_path: Path, capsys: Out) -> None:
    file = written(tmp_path)
    arguments = ["--request", LOGIN, "--times", "7", "--every", "500ms", "--format", "json"]
    assert limits("try", file, *arguments) == 0
    trial = json.loads(capsys.readouterr().out)
    assert [(one["rule"], one["key"], one["cost"]) for one in trial["matched"]] == [
        ("login", "address:127.0.0.1", 1),
        ("trial", "user:ann", 1),
    ]
    assert (trial["limited"], trial["admitted"], len(trial["requests"])) == (True, 5, 7)
    last = trial["requests"][-1]
    assert (last["after_s"], last["allowed"], last["reason"]) == (3.0, False, "rate_limited")
    assert last["retry_after_s"] == 9.0
    assert last["explained"].startswith("Refused by rule 'login'.")
    assert limits("try", file, "--request", "{}", "--format", "json") == 0
    assert not json.loads(capsys.readouterr().out)["limited"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--request", "{"], "request: '{' cannot be used"),
        (["--request", "[" * 100_000], "request: "),
        (["--request", "[]"], "give it as JSON"),
        (["--request", '{"pth": 1}'], "did you mean 'path'?"),
        (["--request", '{"path": 1}'], "request.path: 1 cannot be used; give a text"),
        (["--request", '{"headers": {"a": 1}}'], "give names with texts"),
        (["--request", '{"headers": "a"}'], "give names with texts"),
        (["--request", "{}", "--times", "0"], "from 1 to 100,000"),
        (["--request", "{}", "--times", "100001"], "from 1 to 100,000"),
        (["--request", "{}", "--times", "9" * 5_000], "from 1 to 100,000"),
        (["--request", "{}", "--every", "soon"], "give a time, as 100ms"),
        (["--request", "{}", "--every=-1s"], "give a time, as 100ms"),
        (["--request", "{}", "--every", "2 years"], "up to 366 days"),
        (["--request", "{}", "--every", "1s burst 3"], "give a time, as 100ms"),
        ([], "--request"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_asked_wrongly_is_two_and_one_line(
    flags: list[str], words: str, tmp_path: Path, capsys: Out
) -> None:
    assert limits("try", written(tmp_path), *flags) == 2
    output = capsys.readouterr().err
    assert output.startswith("sluicegate: ")
    assert words in output
    assert len(output.splitlines()) == 1
    assert len(output) < 400


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, capsys: Out) -> None:
    bad = written(tmp_path, RULES.replace("5/minute", "5/fortnight"))
    assert limits("try", bad, "--request", "{}") == 2
    assert "'5/fortnight'" in capsys.readouterr().err
    assert limits("try", str(tmp_path / "nope.yaml"), "--request", "{}") == 1
    assert limits("try", bad, "--request", "@/nowhere.json") == 1
