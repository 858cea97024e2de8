"""The chat: each hears both, in one order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.apps.pubsub.process import PubSubProcess
from tests.engines.child import PATIENCE_S
from tests.test_docs import ASKS_A_SERVICE, readme_block

EXAMPLE = Path(__file__).parents[2] / "examples" / "pubsub_chat.py"


def test_each_hears_what_both_say_and_the_readme_hears_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PubSubProcess(tmp_path) as server:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), f"ws://127.0.0.1:{server.port}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        exec(readme_block("python", ASKS_A_SERVICE).replace("7090", str(server.port)), {})
    assert capsys.readouterr().out == "{'text': 'hello'}\n"
    lines = done.stdout.splitlines()
    for name in ("Ann", "Bob"):
        heard = [line for line in lines if line.startswith(name)]
        assert heard == [f"{name} hears: Ann: Is anybody here?", f"{name} hears: Bob: I am."]
