"""`sluicegate top`: the overview in a terminal, of real services."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest

from sluicegate.apps.console.picture import picture_of
from sluicegate.apps.console.top import lines_of
from sluicegate.cli import main
from tests.apps.console.process import HOSTILE
from tests.apps.console.states import START_US, dispatcher, limiter, looked, pictured
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file


def test_one_picture_of_real_services_with_the_one_that_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    access = access_file(tmp_path, {"ops": 'grants = ["audit"]'})
    monkeypatch.setenv("SLUICEGATE_TOKEN", token_of("ops"))
    with (
        LimiterProcess(tmp_path, "--rules", rules_file(tmp_path, NATIVE)) as one,
        KvProcess(tmp_path, "--engine", "memory:", "--access", access) as kv,
    ):
        urls = [word for url in (one.url, kv.url, "http://127.0.0.1:1") for word in ("--at", url)]
        assert main(["top", "--once", "--every", "0.2", *urls]) == 0
        text = capsys.readouterr().out
        assert text.startswith("ALARM: 1 of 3 services does not answer: http://127.0.0.1:1.")
        rows = [line.split()[:2] for line in text.splitlines() if "http://" in line][1:]
        assert [row[1] for row in rows] == ["-", "limiter", "kv"]
        assert main(["top", "--once", "--json", "--every", "0.2", *urls[2:4]]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [node["app"] for node in shown["nodes"]] == ["kv"]
        assert shown["sentence"] == "All is calm: nobody asks."
        assert main(["top", "--once", "--brief", "--every", "0.2", *urls[2:4]]) == 0
        assert capsys.readouterr().out == "CALM: All is calm: nobody asks.\n"
        monkeypatch.delenv("SLUICEGATE_TOKEN")
        assert main(["top", "--once", "--every", "0.2", "--at", kv.url]) == 1
        assert "takes a token with the grant audit" in capsys.readouterr().err


def test_classes_reasons_and_the_sentence_are_those_of_the_console() -> None:
    before = limiter(0.0, CRITICAL={"allowed": 0, "shed": 0}, BULK={"allowed": 0, "shed": 0})
    after = limiter(1.0, CRITICAL={"allowed": 50, "shed": 0}, BULK={"allowed": 10, "shed": 30})
    lines = lines_of(pictured(looked(before, after)))
    assert lines[0].startswith("DEFENDING: ")
    classes = {line.split()[0]: line.split()[1:5] for line in lines if line.startswith("  ")}
    assert classes["CRITICAL"] == ["50/s", "0/s", "0/s", "0.00%"]
    assert classes["BULK"] == ["10/s", "30/s", "30/s", "75.00%"]
    assert classes["shed"] == ["30/s"]


def test_what_services_say_of_themselves_moves_no_cursor() -> None:
    state = dispatcher(0.0, node="\x1b[2J" + HOSTILE + "\u202e" + "a" * 10_000)
    picture = picture_of([looked(state, state), looked(None, None, "http://gone:1")], START_US)
    lines = lines_of(picture)
    out = StringIO("\n".join(lines)).getvalue()
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert max(map(len, lines)) < 300
