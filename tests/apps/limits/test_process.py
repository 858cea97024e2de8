"""The whole, as its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.apps.limits.asking import RULES, written


def test_check_and_try_run_as_a_process(tmp_path: Path) -> None:
    file = written(tmp_path)
    checked = _run("check", file)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "POST /login" in checked.stdout
    steps = _run(
        "try", file, "--request", "-", "--times", "6", stdin='{"path": "/login", "method": "POST"}'
    )
    assert (steps.returncode, steps.stderr) == (0, "")
    assert steps.stdout.endswith("5 of 6 requests admitted.\n")
    bad = _run("check", written(tmp_path, RULES.replace("key: address", "key: adress")))
    assert bad.returncode == 1
    assert "rules.login.key: 'adress'" in bad.stdout


def _run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.apps.limits.asking", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        input=stdin,
        cwd=Path(__file__).parents[3],
    )
