"""The code in the pages runs as it stands: each page's blocks in order, in one namespace.

So do the commands of a few pages, in a folder that has what a checkout has.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Shows parts of tests, which have fixtures.
NOT_RUN = {"engines.md"}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# A block that asks a running service; `tests/examples/test_pubsub_chat.py` runs it with one.
ASKS_A_SERVICE = "PubSubClient("
SHELL = 'set -eu; sluicegate() { "$PYTHON" -m sluicegate.cli "$@"; }\n'
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
    if page.name not in NOT_RUN and BLOCK.search(page.read_text(encoding="utf-8"))
]


# slowapi's own, from Python 3.14 on.
@pytest.mark.filterwarnings("ignore:'asyncio.iscoroutinefunction' is deprecated")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path) -> None:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert found
    blocks = [block for block in found if ASKS_A_SERVICE not in block]
    namespace: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


def readme_block(language: str, words: str) -> str:
    """The one block of the README in this language that has these words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (block,) = (one for one in found if words in one)
    return str(block)


def run_commands(folder: Path, commands: str) -> str:
    """Run them as they are written, with our Python for `sluicegate`; return what they print."""
    done = subprocess.run(
        ["sh", "-c", SHELL + commands],
        cwd=folder,
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands_of(page: str, start: str) -> list[str]:
    """The commands of a page that begin so."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^(?:\$ )?({start}.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "docs/guides/rulebook.md"])
def test_a_rulebook_is_begun_and_changed_as_the_page_says(page: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (begin,) = commands_of(page, "sluicegate rules init")
    (propose,) = commands_of(page, "sluicegate rules propose")
    printed = run_commands(tmp_path, begin)
    assert "version 1" in printed
    changed = tmp_path / "deploy" / "limiter" / "rules" / "10-resources.yaml"
    changed.write_text(changed.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    printed = run_commands(tmp_path, f"export SLUICEGATE_RULEBOOK=book\n{propose}")
    assert re.search(r"state +open", printed)


def test_the_glass_is_broken_and_mended_as_the_page_says(tmp_path: Path) -> None:
    page = "docs/guides/break-glass.md"
    (store,) = commands_of(page, "export SLUICEGATE_STORE_URL")
    store = store.replace("redis://cache:6379", f"file:{tmp_path}/glass.json")
    breaks = commands_of(page, "sluicegate limits glass break")
    (mend,) = commands_of(page, "sluicegate limits glass mend")
    printed = run_commands(tmp_path, "\n".join([store, *breaks]))
    ids = re.findall(r"^glass broken: (\w+)", printed, re.MULTILINE)
    assert len(ids) == len(breaks) == 3
    mends = [mend.replace("ID", each) for each in ids]
    printed = run_commands(tmp_path, "\n".join([store, *mends]))
    assert len(re.findall(r"^mended: ", printed, re.MULTILINE)) == len(ids)
    audit = run_commands(tmp_path, f"{store}\nsluicegate limits glass audit")
    assert len(audit.splitlines()) == 2 * len(ids)
