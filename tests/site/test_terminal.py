"""The picture of `sluicegate top`: three scenes, in the columns that it has today."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from sluicegate.apps.console.picture import ClassFlow, FleetPicture, NodeRow, SlowShard
from sluicegate.apps.console.top import lines_of
from tests.site.build import ROOT
from tests.site.terminal import SCENES, SETTLED, draw, scenes_of

SVG = "{http://www.w3.org/2000/svg}"
FILE = ROOT / "docs" / "pictures" / "top.svg"
SENTENCES = (
    "CALM: All is calm: 90/s admitted, 3.0/s refused as their limits say.",
    "DEFENDING: nightly asks for more than its quota: 9/s of its requests are refused.",
    "DEFENDING: The backend is slow on shard-3.",
)


def printed(seconds: int) -> list[str]:
    """What is printed: so many seconds of each scene, with a second of another between them."""
    lines: list[str] = []
    for sentence in SENTENCES:
        lines += ["CALM: All is calm: nobody asks.", ""]
        for second in range(1, seconds + 1):
            lines += [sentence, "", f"  second  {second}", ""]
    return lines


def test_each_scene_gives_the_picture_of_the_second_in_which_it_has_settled() -> None:
    scenes = scenes_of([*printed(SETTLED + 1)])
    assert scenes == [[sentence, "", f"  second  {SETTLED}"] for sentence in SENTENCES]


def test_a_scene_that_never_came_is_an_error() -> None:
    with pytest.raises(ValueError, match="only 0 of 3 scenes were there"):
        scenes_of(printed(SETTLED - 1))


def test_cells_stand_in_columns_and_what_others_wrote_stays_text() -> None:
    drawn = draw([["CALM: <b>", "  ab  c d"]] * 3)
    texts = [
        (text.text, float(text.attrib["x"])) for text in ET.fromstring(drawn).iter(f"{SVG}text")
    ]
    assert texts[1][0] == "CALM: <b>"
    assert [name for name, _ in texts[2:4]] == ["ab", "c d"]
    assert texts[3][1] > texts[2][1]


def test_the_picture_in_the_tree_is_of_what_top_prints_today() -> None:
    root = ET.fromstring(FILE.read_text(encoding="utf-8"))
    frames = [
        [text.text or "" for text in frame.iter(f"{SVG}text")] for frame in root.iter(f"{SVG}g")
    ]
    for frame, scene in zip(frames, SCENES, strict=True):
        assert scene.match(frame[0])
    today = lines_of(
        FleetPicture(
            at_us=0,
            nodes=(NodeRow("http://127.0.0.1:7070", "", 0, "limiter"),),
            classes=(ClassFlow("BULK"),),
            slow=(SlowShard("", "shard-3", "get", 0.3, 9, 12, "found"),),
        )
    )
    heads = [
        line.split("  ") for line in today if line.startswith(("  class", "  slow", "  service"))
    ]
    words = {cell.strip() for head in heads for cell in head if cell.strip()}
    assert words
    assert words <= {*frames[2]}, "take it anew: make screenshot"
    assert "prefers-reduced-motion" in (root.findtext(f"{SVG}style") or "")


def test_the_front_page_is_short_and_shows_both_views() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    assert "(docs/pictures/console.png)" in readme
    assert "(docs/pictures/top.svg)" in readme
