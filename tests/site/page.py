"""Page: one Markdown file as HTML, with what is needed to check and to search it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")
_NOT_IN_SLUGS: Final = re.compile(r"[^\w\- ]")
Resolve = Callable[[str], str]


@dataclass
class Part:
    """What stands below a heading: its anchor, its words, and the text for the search."""

    anchor: str
    heading: str
    text: list[str] = field(default_factory=list)


@dataclass
class SitePage:
    """A page: its title, its HTML, its parts."""

    title: str
    html: str
    parts: list[Part]

    @property
    def anchors(self) -> set[str]:
        """Where a link may lead to."""
        return {part.anchor for part in self.parts}


def parse(text: str, resolve: Resolve) -> SitePage:
    """Return the page; each target of a link or picture is replaced by what `resolve` makes of it.

    Anchors are made as forges make them, so that a link works in both places.
    """
    tokens = MARKDOWN.parse(text)
    parts = [Part("", "")]
    slugs: dict[str, int] = {}
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            words = plain(tokens[at + 1].children or ())
            slug = slug_of(words)
            count = slugs[slug] = slugs.get(slug, -1) + 1
            anchor = f"{slug}-{count}" if count else slug
            token.attrSet("id", anchor)
            parts.append(Part(anchor, words))
        elif token.type == "inline":
            parts[-1].text.append(plain(token.children or ()))
            _resolve_links(token.children or (), resolve)
        elif token.type in ("fence", "code_block"):
            parts[-1].text.append(token.content)
    title = next((part.heading for part in parts if part.heading), "")
    html = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    # A wide table is scrolled by itself, and not the page with it.
    html = html.replace("<table>", '<div class="wide"><table>').replace(
        "</table>", "</table></div>"
    )
    return SitePage(title, html, parts)


def slug_of(words: str) -> str:
    """The anchor of a heading."""
    return _NOT_IN_SLUGS.sub("", words.lower()).replace(" ", "-")


def plain(tokens: Sequence[Token]) -> str:
    """The words of a line without their marks."""
    return "".join(
        " " if token.type == "softbreak" else token.content
        for token in tokens
        if token.type in ("text", "code_inline", "softbreak")
    )


def source(name: str, text: str) -> str:
    """A file of the tree to read, line by line."""
    lines = text.split("\n")
    width = len(str(len(lines)))
    numbered = "\n".join(
        f'<span id="L{at}" class="at">{at:>{width}}</span>  {escape(line)}'
        for at, line in enumerate(lines, 1)
    )
    return f"<h1>{escape(name)}</h1><pre><code>{numbered}</code></pre>"


def _resolve_links(tokens: Sequence[Token], resolve: Resolve) -> None:
    for token in tokens:
        for kind, name in (("link_open", "href"), ("image", "src")):
            if token.type == kind:
                token.attrSet(name, resolve(str(token.attrGet(name))))
