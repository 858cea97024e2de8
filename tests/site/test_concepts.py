"""The pictures of the concepts are what the kernels draw now, and their pages show them."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from sluicegate.kernels.gcra import Gcra
from tests.site.concepts import limits
from tests.site.concepts.pages import PICTURES, page_of, shown, with_picture
from tests.site.concepts.table import DRAWINGS

SVG = "{http://www.w3.org/2000/svg}"
ANEW = "draw them anew: python -m tests.site.concepts"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_and_its_sentence_are_what_the_kernel_does(name: str) -> None:
    drawing = DRAWINGS[name]()
    page = page_of(name).read_text(encoding="utf-8")
    assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == drawing.svg, ANEW
    assert shown(name, drawing) in page, ANEW
    assert with_picture(page, name, drawing) == page
    root = ET.fromstring(drawing.svg)
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text == drawing.title
    assert description is not None
    assert description.text == drawing.sentence


def test_each_picture_in_the_tree_is_drawn_here() -> None:
    assert {file.stem for file in PICTURES.iterdir()} == {*DRAWINGS}


def test_a_kernel_that_changes_draws_another_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    before = limits.gcra()
    monkeypatch.setattr(limits, "Gcra", lambda count, period, burst: Gcra(count, period, burst + 1))
    after = limits.gcra()
    assert after.svg != before.svg
    assert after.sentence != before.sentence


def test_no_words_of_a_picture_leave_it() -> None:
    """By a generous width of letters, since no font is at hand."""
    for name in DRAWINGS:
        root = ET.fromstring((PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
        wide = float(root.attrib["width"])
        for text in root.iter(f"{SVG}text"):
            kinds = text.attrib["class"].split()
            length = len(text.text or "") * (8.0 if "name" in kinds else 7.2)
            x = float(text.attrib["x"])
            left = x - length if "end" in kinds else x - length / 2 if "mid" in kinds else x
            assert left >= 0, f"{name}: {text.text}"
            assert left + length <= wide, f"{name}: {text.text}"
