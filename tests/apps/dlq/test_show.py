"""`sluicegate dlq show` prints the letters that were asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.event_logs import open_log
from tests.apps.dlq.logs import dlq, letters_of, write

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return write(
        f"files:{tmp_path}/dlq",
        letters_of(("ann", 3, True, 900), ("bob\x1b[2J", 1_000, False, 60), ("ann", 1, True, 5)),
    )


def test_each_letter_is_a_line_with_whom_what_and_why(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dlq("show", url) == 0

    first, second, third = capsys.readouterr().out.splitlines()
    assert " UTC  admitted  ann  by login  cost 3  CRITICAL  Redis said nothing  [n/1/1:0]" in first
    assert "refused   bob\\x1b[2J  by login  cost 1,000" in second
    assert "store_unavailable; Redis said nothing  [n/1/1:1]" in second
    assert third.endswith("[n/1/1:2]")


def test_json_is_what_the_log_has_and_the_id(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("show", url, "--json", "--user", "ann") == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == ["n/1/1:0", "n/1/1:2"]
    assert lines[0]["limit"]["algorithm"] == "sliding_log"


def test_only_what_is_asked_for_is_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlq("show", url, "--since", "10m") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert dlq("show", url, "--since", "10m", "--user", "ann", "--rule", "login") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert dlq("show", url, "--rule", "other") == 0
    assert capsys.readouterr().out == "no letters\n"


def test_a_log_may_be_named_by_the_environment(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dlq("show") == 2
    assert "SLUICEGATE_DLQ" in capsys.readouterr().err
    monkeypatch.setenv("SLUICEGATE_DLQ", url)
    assert dlq("show") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["show", "redis://x"], "give files:DIR or kafka://"),
        (["show", "files:x", "--since", "soon"], "--since: 'soon' cannot be used"),
        (["replay", "files:x"], "--store: '' cannot be used"),
        (["check", "files:.", "--store", "memory:"], "store_url"),
    ],
)
def test_a_wrong_question_is_answered_in_one_line(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dlq(*words) == 2
    fields = capsys.readouterr().err
    assert sentence in fields
    assert fields.count("\n") == 1


def test_a_missing_package_is_named_with_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("sluicegate.stores.kafka.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)

    assert dlq("show", "kafka://127.0.0.1:1/t") == 1
    assert "pip install '.[kafka]'" in capsys.readouterr().err
    with pytest.raises(BadValue):  # a wrong URL first
        open_log("kafka://127.0.0.1:1/")


def test_a_silent_log_is_given_up_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("confluent_kafka")
    assert dlq("show", "kafka://127.0.0.1:1/t", "--patience", "500ms") == 1
    assert "is unavailable: it said nothing for 0.5 s" in capsys.readouterr().err


def test_damage_and_strange_letters_are_told_and_passed_over(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = open_log(url)
    for kind, body in (("dead_letter", b"{}"), ("dead_letters.closed", b"?"), ("news", b"x")):
        log.append(kind, body, 1).result(60)
    log.close(1_000_000)
    segment = next(Path(url.removeprefix("files:")).glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)

    assert dlq("show", url) == 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) in {2, 3}
    assert output.err.count("passed over") == 2
    assert f"damaged: {segment}" in output.err


def test_following_shows_what_comes_and_ends_cleanly(url: str, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from sluicegate import cli\n"
        "from tests.apps.dlq.logs import dlq\n"
        "try:\n"
        "    sys.exit(dlq('show', sys.argv[1], '--follow'))\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(cli.INTERRUPTED)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, f"{url}?poll_ms=5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert child.stdout is not None
        assert [child.stdout.readline().endswith("]\n") for _ in range(3)] == [True] * 3
        write(url, letters_of(("zoe", 1, True, 0), process="n/2/2"))
        assert "zoe" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        assert (child.returncode, errors) == (130, "")
    finally:
        child.kill()
        child.wait()


def test_a_folder_that_is_not_there_is_no_log_without_letters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("show", "check"):
        assert dlq(verb, f"files:{tmp_path}/slip") == 1
        assert "/slip is unavailable: there is no such folder" in capsys.readouterr().err
