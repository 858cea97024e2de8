"""Pages: a policy that allows their own style and nothing else, and no words as markup."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

from sluicegate.command_line.page import (
    ICON,
    STYLE,
    cell,
    color_key,
    escape_name,
    escape_words,
    notes,
    number,
    render_page,
    row,
    section,
    table,
)

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\ud800\"'&"


def test_a_page_allows_its_own_style_and_nothing_else() -> None:
    page = render_page(HOSTILE, ["<p>hello</p>"], "p { margin: 0; }")
    (style,) = re.findall("<style>(.*)</style>", page, re.DOTALL)
    assert style == STYLE + "p { margin: 0; }"
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page
    assert "<script" not in page


def test_a_page_that_is_served_brings_its_icon_and_its_policy_lets_it_be_shown() -> None:
    """A browser asks the server for one else, and has an error for each page."""
    page = render_page("Nodes", [], served=True)
    assert f'<link rel="icon" href="{ICON}">' in page
    assert '; img-src data:"' in page


def test_pieces_escape_what_they_say() -> None:
    pieces = [
        escape_name(HOSTILE),
        escape_words(HOSTILE),
        section(HOSTILE),
        table([HOSTILE], [HOSTILE], [row(cell(escape_name(HOSTILE)), number(HOSTILE, bad=True))]),
        color_key([("newly", HOSTILE)]),
        notes([HOSTILE]),
    ]
    for piece in pieces:
        assert "&lt;script&gt;" in piece
        assert "<script" not in piece
    assert pieces[0].isprintable()
    assert pieces[0].isascii()
