"""The code of the two guides runs as it stands, against a `sluicegate limiter` of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.apps.limiter.process import LimiterProcess

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)
RULES = """\
version: 1
rules:
  - {rule_id: everything, limit: 100, window_seconds: 60}
"""


@pytest.mark.parametrize("page", ["client.md", "service-store.md"])
def test_the_code_of_a_guide_runs(page: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    text = (GUIDES / page).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 3
    with LimiterProcess(tmp_path, "--rules", str(rules), "--shed", "off") as limiter:
        # A busy machine may be slow.
        here = f"127.0.0.1:{limiter.port}"
        namespace: dict[str, object] = {}
        for number, block in enumerate(blocks, 1):
            code = block.replace('127.0.0.1:7070"', f'{here}?timeout_ms=5000"')
            exec(compile(code, f"{page}, block {number}", "exec"), namespace)
