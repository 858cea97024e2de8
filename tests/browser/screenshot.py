"""`python -m tests.browser.screenshot FILE`: the console of `sluicegate up`, as in the README.

It waits until the charts are full (five minutes) and one key is hot again, and writes a PNG of few
colours.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image

FULL_S: Final = 300.0
SIZE: Final = (1280, 776)
COLORS: Final = 128
SCENE: Final = re.compile("One key has")
WAIT_MS_MAX: Final = 120_000


def take(file: Path, full_s: float) -> None:
    """Start it all, wait, and write the picture."""
    command = [sys.executable, "-m", "sluicegate.cli", "up", "--free-ports"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        found = next(filter(None, (re.search(r"open (http:\S+)", line) for line in up.stdout)))
        try:
            file.write_bytes(_picture(found[1], full_s))
        finally:
            up.terminate()
            up.communicate()


def _picture(url: str, full_s: float) -> bytes:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.goto(url)
        page.wait_for_timeout(full_s * 1_000)
        expect(page.locator(".going-on")).to_have_text(SCENE, timeout=WAIT_MS_MAX)
        page.wait_for_timeout(5_000)  # so that the charts have it, too
        shown = page.screenshot()
        browser.close()
    out = BytesIO()
    Image.open(BytesIO(shown)).convert("RGB").quantize(COLORS).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    take(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else FULL_S)
