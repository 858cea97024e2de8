"""The example does what it says: each picture of a catalogue is downloaded and made once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "image_catalogue.py"


def test_each_picture_is_downloaded_and_made_once() -> None:
    pytest.importorskip("pyvips", reason="pyvips is missing: pip install '.[images]'")
    command = [sys.executable, str(EXAMPLE), "--urls", "20", "--calls", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "prefetched 40 of 40 thumbnails, 0 failed" in done.stdout
    # 12 contents, and two thumbnails of each.
    assert re.search(r"20 downloads, 8 of bytes .*; 24 pictures processed", done.stdout)
