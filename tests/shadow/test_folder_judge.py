"""The gate on a folder of captures: what it cannot read, it says once and in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.rulebook import NOT_JUDGED, PASSED
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.folder_judge import FolderJudge
from sluicegate.shadow.gate import JudgeSettings
from sluicegate.shadow.traffic import ALL
from sluicegate.testing import START_US, HandClock

RULES = {
    "a.yaml": b"version: 1\ncallers: {names: {ann: CRITICAL}}\n"
    b"rules: [{rule_id: play, resource_path: /play, limit: 100, window: 1h}]\n"
}


def captured(folder: Path, *, queries: int = 30) -> Path:
    """A capture of one caller, redacted under the key beside it."""
    capture = Capture(CaptureSettings(folder=str(folder), share=ALL), clock=HandClock(START_US))
    for number in range(queries):
        query = CheckRequest("ann", "/play", priority=Criticality.CRITICAL)
        capture.note_check(query, START_US + number * 1_000, False)
    capture.close()
    return folder


def judged(folder: Path, key: Path | None = None) -> tuple[str, str]:
    settings = JudgeSettings(samples_min=20)
    key = folder.with_name(f"{folder.name}.key") if key is None else key
    verdict = FolderJudge(str(folder), str(key), settings).judge(RULES, RULES)
    return verdict.result, verdict.sentence


def test_a_capture_under_its_key_is_tried_with_the_names_that_rules_know(tmp_path: Path) -> None:
    result, sentence = judged(captured(tmp_path / "capture"))
    assert result == PASSED, sentence
    assert "of 30 CRITICAL" in sentence


def test_a_folder_of_nothing_is_not_judged(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        assert judged(folder) == (NOT_JUDGED, f"Nothing has been captured in {folder} yet.")


def test_without_the_key_it_says_that_the_capture_cannot_be_read(tmp_path: Path) -> None:
    result, sentence = judged(captured(tmp_path / "capture"), tmp_path / "none.key")
    assert result == NOT_JUDGED
    assert sentence.startswith("The capture cannot be read: ")
    assert "key" in sentence


def test_a_folder_that_may_not_be_listed_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = captured(tmp_path / "capture")

    def refuse(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("sluicegate.shadow.folder_judge.os.listdir", refuse)
    result, sentence = judged(folder)
    assert result == NOT_JUDGED
    assert "Permission denied" in sentence


def test_rules_that_cannot_be_read_are_told_as_such(tmp_path: Path) -> None:
    folder = captured(tmp_path / "capture")
    judge = FolderJudge(str(folder), f"{folder}.key", JudgeSettings(samples_min=20))
    verdict = judge.judge(RULES, {"a.yaml": b"version: 1\nrules: [\n"})
    assert verdict.result == NOT_JUDGED
    assert verdict.sentence.startswith("The rules cannot be read: a.yaml: line 3")


def judge_candidate(folder: Path, candidate: bytes) -> tuple[str, str]:
    judge = FolderJudge(str(folder), f"{folder}.key", JudgeSettings(samples_min=20))
    verdict = judge.judge(RULES, {**RULES, "new.yaml": candidate})
    return verdict.result, verdict.sentence


def test_nothing_passes_that_could_not_be_tried(tmp_path: Path) -> None:
    folder = captured(tmp_path / "capture")
    result, sentence = judge_candidate(
        folder,
        b"version: 1\nclient_type_header: x-kind\n"
        b"rules: [{rule_id: tv, client_type: tv, limit: 1, window: 1h}]\n",
    )
    assert result == NOT_JUDGED
    assert "the header x-kind was not captured" in sentence


def test_a_glob_over_what_was_redacted_is_not_judged(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = Capture(CaptureSettings(folder=str(folder), share=ALL), clock=HandClock(START_US))
    for number in range(30):
        capture.note_check(
            CheckRequest("ann", "/play", priority=Criticality.CRITICAL), START_US + number, False
        )
        query = MeshRequest("edge", [Descriptor([("user", f"u-{number}")])])
        capture.note_mesh(query, START_US + number, False)
    capture.close()
    limit = "{unit: hour, requests_per_unit: 1}"
    mesh = f"domain: edge\ndescriptors: [{{key: user, value: '%s', rate_limit: {limit}}}]\n"
    result, sentence = judge_candidate(folder, (mesh % "u-*").encode())
    assert result == NOT_JUDGED
    assert "'u-*' of user cannot match" in sentence
    assert judge_candidate(folder, (mesh % "u-7").encode())[0] == PASSED
