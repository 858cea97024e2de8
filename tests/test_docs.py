"""The code in the pages runs as it stands: each page's blocks in order, in one namespace."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Shows parts of tests, which have fixtures.
NOT_RUN = {"engines.md"}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
    if page.name not in NOT_RUN and BLOCK.search(page.read_text(encoding="utf-8"))
]


# slowapi's own, from Python 3.14 on.
@pytest.mark.filterwarnings("ignore:'asyncio.iscoroutinefunction' is deprecated")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    namespace: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
