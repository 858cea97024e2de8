"""Pages: where the picture of a concept and its sentence stand, after the first paragraph."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import fill
from typing import Final

from tests.site.concepts.panel import Drawing

ROOT: Final = Path(__file__).resolve().parents[3]
PICTURES: Final = ROOT / "docs" / "pictures" / "concepts"
WIDTH: Final = 100
_SHOWN: Final = re.compile(r"^!\[[^\n]*\]\(\.\./pictures/concepts/[^\n]*\)\n\n.+?\n\n", re.M | re.S)


def page_of(name: str) -> Path:
    """The page of a concept."""
    return ROOT / "docs" / "concepts" / f"{name}.md"


def shown(name: str, drawing: Drawing) -> str:
    """The picture and its sentence, as they stand in the page."""
    sentence = fill(drawing.sentence, WIDTH, break_long_words=False, break_on_hyphens=False)
    return f"![{drawing.title}](../pictures/concepts/{name}.svg)\n\n{sentence}\n\n"


def with_picture(text: str, name: str, drawing: Drawing) -> str:
    """The page with this picture, in place of the one it has or after its first paragraph.

    A first paragraph that goes on in a list or a formula ends with that.
    """
    blocks = _SHOWN.sub("", text, count=1).split("\n\n")
    at = 2
    if not blocks[1].endswith("."):
        at = next(at for at, block in enumerate(blocks) if at > 1 and block.startswith(("**", "#")))
    before, after = "\n\n".join(blocks[:at]), "\n\n".join(blocks[at:])
    return f"{before}\n\n{shown(name, drawing)}{after}"
