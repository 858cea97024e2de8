"""`sluicegate pubsub cluster`: as a user starts and ends it."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.engines.child import Child, until


def test_the_demonstration_holds_who_is_over_refuses_nobody_else_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    flags = ["-n", "3", "--rate", "40", "--plain", "--every", "0.5"]
    command = [sys.executable, "-m", "sluicegate.cli", "pubsub", "cluster", *flags]
    demo = Child("demonstration", command, tmp_path / "demo.log")

    def rows(account: str) -> list[list[float]]:
        found = re.findall(rf"^  {account} +([\d,.]+ .+)$", demo.log.read_text(), re.MULTILINE)
        return [[float(cell.replace(",", "")) for cell in one.split()[:4]] for one in found]

    try:
        # attempted, admitted, limit, factor
        until(
            lambda: any(
                one[0] > 200 and 30 < one[1] < 50 and one[2] == 40 and one[3] > 0.8
                for one in rows("over")
            ),
            "the account to be held",
            children=[demo],
        )
        assert any(one[0] == one[1] > 0 and one[3] == 0 for one in rows("fair"))
        nodes = [int(pid) for pid in re.findall(r"\(process (\d+)\)", demo.log.read_text())]
        assert len(nodes) == 3
        os.kill(demo.pid, signal.SIGINT)
        assert demo.wait(60) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in nodes)
        assert not list(temporary.iterdir())
        assert "Traceback" not in demo.log.read_text()
    finally:
        demo.stop()


@pytest.mark.prove
def test_the_sources_first_attempt_swings_from_everything_to_nothing(tmp_path: Path) -> None:
    flags = ["-n", "2", "--rate", "40", "--plain", "--every", "1", "--seconds", "120"]
    form = ["--estimate", "linear", "--suppression", "coin", "--node-ratio", "0"]
    command = [sys.executable, "-m", "sluicegate.cli", "pubsub", "cluster", *flags, *form]
    demo = Child("demonstration", command, tmp_path / "demo.log")

    def admitted() -> list[float]:
        found = re.findall(r"^  over +[\d,.]+ +([\d,.]+) ", demo.log.read_text(), re.MULTILINE)
        return [float(one.replace(",", "")) for one in found]

    try:
        until(lambda: any(one > 200 for one in admitted()), "no limit", children=[demo])
        until(lambda: admitted()[-2:] == [0, 0], "nothing for seconds", children=[demo])
    finally:
        os.kill(demo.pid, signal.SIGINT)
        assert demo.wait(60) == 0


@pytest.mark.parametrize(
    ("flags", "why"), [(["-n", "0"], "-n: 0"), (["--estimate", "x"], "--estimate: 'x'")]
)
def test_what_cannot_be_started_is_refused(tmp_path: Path, flags: list[str], why: str) -> None:
    command = [sys.executable, "-m", "sluicegate.cli", "pubsub", "cluster", *flags]
    child = Child("demonstration", command, tmp_path / "demo.log")
    assert child.wait(60) == 2
    assert why in child.log.read_text()
