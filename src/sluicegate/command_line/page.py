"""Page: one HTML file that needs nothing else, and the pieces that pages are made of.

There is no script and no address in it, and a policy in its head forbids everything but its own
style sheet, which it knows by its digest; so whatever a name from the traffic says, it stays a
name. Colours turn dark where the reader's screen is. `STYLE` has what all pages share; a page adds
its own colours and rules. Every function returns HTML; `escape_words` makes HTML of other text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Final

from sluicegate.command_line.text import clip, clip_words

STYLE: Final = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2024; --muted: #5c646f;
  --grid: #e4e7eb; --soft: #f5f6f8; --font: system-ui, -apple-system, "Segoe UI", sans-serif; }
@media (prefers-color-scheme: dark) { :root { --paper: #16191d; --ink: #e6e8ea; --muted: #98a1ab;
  --grid: #2c3238; --soft: #1d2126; } }
* { box-sizing: border-box; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 var(--font); margin: 0; }
main { margin: 0 auto; max-width: 1060px; padding: 32px 24px 64px; }
h1 { font-size: 26px; letter-spacing: -0.01em; margin: 0 0 8px; }
h2 { font-size: 19px; letter-spacing: -0.01em; margin: 0 0 4px; }
h3 { font-size: 14px; margin: 20px 0 0; overflow-wrap: anywhere; }
p { margin: 4px 0; max-width: 78ch; overflow-wrap: anywhere; }
.quiet { color: var(--muted); font-size: 13.5px; }
.callout { border-left: 5px solid var(--muted); background: var(--soft); margin: 0 0 16px;
  border-radius: 0 6px 6px 0; padding: 12px 16px; }
section { border-top: 1px solid var(--grid); margin-top: 32px; padding-top: 20px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums;
  margin: 12px 0; }
.scroll { overflow-x: auto; }
th { color: var(--muted); font-weight: 500; text-align: left; vertical-align: bottom; }
th, td { border-bottom: 1px solid var(--grid); padding: 4px 18px 4px 0; vertical-align: top; }
td.number, th.number { text-align: right; }
td.number { white-space: nowrap; }
.name { max-width: 320px; overflow-wrap: anywhere; }
svg { display: block; height: auto; margin-top: 8px; width: 100%; }
svg text { fill: var(--ink); font: 12px var(--font); }
svg text.axis { fill: var(--muted); }
svg text.end { text-anchor: end; }
.grid { stroke: var(--grid); stroke-width: 1; }
.line { fill: none; stroke-linejoin: round; stroke-width: 2; }
.fill.empty { fill: var(--soft); }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; list-style: none;
  margin: 8px 0 0; padding: 0; }
.key svg { display: inline-block; height: 11px; margin: 0 6px 0 0; width: 11px; }
ul.notes { margin: 8px 0; max-width: 78ch; padding-left: 18px; }
@media print { section { break-inside: avoid; } }
"""

# A gate between two posts, and what flows through; browsers ask a server for an icon else.
ICON: Final = (
    "data:image/svg+xml,"
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath fill='%237b8492' d='M1 1h3v14H1zm11 0h3v14h-3zM5 1h6v7H5z'/%3E"
    "%3Cpath fill='%232f6fde' d='M5 11h6v4H5z'/%3E%3C/svg%3E"
)


def render_page(
    title: str,
    body: Iterable[str],
    style: str = "",
    *,
    inline_styles: bool = False,
    head: str = "",
    script: str = "",
    served: bool = False,
    images: bool = False,
) -> str:
    """Return the whole file; `style` comes after `STYLE`, and `head` stands above the main part.

    `inline_styles` allows style attributes, which drawings of other programs have. A page that is
    `served` has an icon, and may have forms, and a `script` of ours, which may ask the server that
    it came from; with `images` it may show those of that server.
    """
    style = STYLE + style
    source = "'unsafe-inline'" if inline_styles else digest_of(style)
    own = "'self'" if served else "'none'"
    policy = f"default-src 'none'; style-src {source}; base-uri 'none'; form-action {own}"
    icon = f'<link rel="icon" href="{ICON}">' if served else ""
    if served:
        policy += "; img-src data: 'self'" if images else "; img-src data:"
    if script:
        policy += f"; script-src {digest_of(script)}; connect-src {own}"
    # Without a referrer a form would name no origin, and be taken for that of another site.
    referrer = "same-origin" if served else "no-referrer"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="referrer" content="{referrer}">',
        f"{icon}<title>{escape(title)}</title><style>{style}</style></head><body>{head}<main>",
        *body,
        f"</main>{f'<script>{script}</script>' if script else ''}</body></html>\n",
    ]
    return "\n".join(parts)


def digest_of(text: str) -> str:
    """Return what a policy calls a style sheet or a script that stands in the page."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def escape_name(text: str) -> str:
    """Return a name that others chose, printable and of bounded length."""
    return escape(clip(text))


def escape_words(text: str) -> str:
    """Return a sentence of ours, each word of which may be a name."""
    return escape(clip_words(text))


def section(title: str, *parts: str) -> str:
    """Return a part of the page under a heading."""
    return "\n".join([f"<section><h2>{escape(title)}</h2>", *parts, "</section>"])


def quiet(words: str) -> str:
    """Return a remark in small letters; `words` is HTML."""
    return f'<p class="quiet">{words}</p>'


def table(
    names: Iterable[str], numbers: Iterable[str], rows: Iterable[str], words: Iterable[str] = ()
) -> str:
    """Return rows under column heads: those of names, of numbers, and of words behind them."""
    heads = [f"<th>{escape(name)}</th>" for name in names]
    heads += [f'<th class="number">{escape(name)}</th>' for name in numbers]
    heads += [f"<th>{escape(name)}</th>" for name in words]
    body = "\n".join([row(*heads), *rows] if heads else rows)
    return f'<div class="scroll" tabindex="0"><table>{body}</table></div>'


def row(*cells: str) -> str:
    """Return a row of cells."""
    return f"<tr>{''.join(cells)}</tr>"


def cell(inside: str, kind: str = "") -> str:
    """Return a cell of HTML; `kind` is its class."""
    return f'<td class="{kind}">{inside}</td>' if kind else f"<td>{inside}</td>"


def number(text: str, *, bad: bool = False) -> str:
    """Return a cell of a table with a number."""
    return cell(escape(text), "number bad" if bad else "number")


def color_key(kinds: Iterable[tuple[str, str]]) -> str:
    """Return what the colours mean: pairs of a class and words."""
    marks = [
        f'<li><svg viewBox="0 0 10 10"><rect class="fill {kind}" width="10" height="10"/></svg>'
        f"{escape(words)}</li>"
        for kind, words in kinds
    ]
    return f'<ul class="key">{"".join(marks)}</ul>'


def notes(several: Iterable[str]) -> str:
    """Return a list of sentences."""
    items = "".join(f"<li>{escape_words(one)}</li>" for one in several)
    return f'<ul class="notes">{items}</ul>'
