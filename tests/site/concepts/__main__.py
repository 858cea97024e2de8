"""`python -m tests.site.concepts`: the pictures of the concepts, and the sentences under them."""

from __future__ import annotations

import sys

from tests.site.concepts.pages import PICTURES, page_of, with_picture
from tests.site.concepts.table import DRAWINGS


def main() -> int:
    """Draw them all, write them and the sentences under them."""
    for name, draw in DRAWINGS.items():
        drawing = draw()
        file = PICTURES / f"{name}.svg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(drawing.svg, encoding="utf-8")
        page = page_of(name)
        text = page.read_text(encoding="utf-8")
        page.write_text(with_picture(text, name, drawing), encoding="utf-8")
    sys.stdout.write(f"{len(DRAWINGS)} pictures in {PICTURES}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
