"""The guide's table of failures names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_test_that_the_guide_names_is_there() -> None:
    names = re.findall(r"`(test_\w+)`", (ROOT / "docs/guides/failures.md").read_text("utf-8"))
    folders = [ROOT / "tests/failures", ROOT / "tests/prove"]
    source = "\n".join(
        path.read_text("utf-8") for folder in folders for path in folder.glob("test_*.py")
    )
    there = set(re.findall(r"^def (test_\w+)\(", source, re.MULTILINE))
    assert len(set(names)) > 15
    assert set(names) <= there, set(names) - there
