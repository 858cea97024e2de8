"""Frame: what stands around every page: where one is, what is going on, the way to other pages."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from sluicegate.apps.console.script import SCRIPT
from sluicegate.apps.console.sentence import Sentence
from sluicegate.command_line.page import escape_words, render_page

PAGES: Final[Mapping[str, str]] = {
    "overview": "Overview",
    "callers": "Callers",
    "hot-keys": "Hot keys",
    "queues": "Queues and prices",
    "nodes": "Nodes",
    "why": "Why",
}
SENTENCE: Final = "sentence"  # the part that all live pages have
SPANS_S: Final = (300, 900, 3_600)
_STYLE: Final = """
:root { --good: #1f7a4d; --bad: #b3261e; --warn: #8a5a00; --link: #1d5fa8; --c0: #7a3fa0;
  --c1: #1d5fa8; --c2: #1f7a4d; --c3: #9a5b00; }
@media (prefers-color-scheme: dark) { :root { --good: #58c58f; --bad: #ff8a80; --warn: #f0b45a;
  --link: #7db7f5; --c0: #cf9cf0; --c1: #7db7f5; --c2: #58c58f; --c3: #f0b45a; } }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
header { border-bottom: 1px solid var(--grid); }
header > div { align-items: center; display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 auto;
  max-width: 1280px; padding: 10px 24px; }
header strong { font-size: 16px; }
nav { display: flex; flex-wrap: wrap; gap: 2px 4px; }
nav a { border-radius: 6px; padding: 6px 10px; text-decoration: none; }
nav a[aria-current] { background: var(--soft); color: var(--ink); font-weight: 600; }
header form, header .state { margin-left: auto; }
header .state + form { margin-left: 0; }
button, input, select { background: var(--paper); border: 1px solid var(--muted);
  border-radius: 6px; color: var(--ink); font: inherit; padding: 6px 12px; }
button { cursor: pointer; }
main { max-width: 1280px; padding: 20px 24px 64px; }
section { margin-top: 20px; padding-top: 16px; }
.state { color: var(--muted); font-size: 13.5px; }
.state::before { content: "not live"; }
body.live .state::before { color: var(--good); content: "live"; }
body.lost .state::before { color: var(--bad); content: "connection lost, trying again"; }
body.paused .state::before { content: "paused"; }
.going-on { border-left: 6px solid var(--good); background: var(--soft);
  border-radius: 0 6px 6px 0; font-size: 17px; margin: 0; max-width: none; padding: 12px 16px; }
.going-on.defending { border-color: var(--warn); }
.going-on.alarm { border-color: var(--bad); }
.numbers { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(132px, 1fr));
  list-style: none; margin: 16px 0 0; padding: 0; }
.numbers a { border: 1px solid var(--grid); border-radius: 8px; color: var(--ink); display: block;
  padding: 8px 12px; text-decoration: none; }
.numbers a:hover { border-color: var(--link); }
.numbers b { display: block; font-size: 21px; font-variant-numeric: tabular-nums;
  font-weight: 600; white-space: nowrap; }
.numbers span { color: var(--muted); font-size: 13px; }
.charts { display: grid; gap: 8px 28px;
  grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); }
.charts h2 { font-size: 15px; }
.bad { color: var(--bad); } .good { color: var(--good); }
td.bad, td.number.bad { color: var(--bad); font-weight: 600; }
svg .line.admitted { stroke: var(--good); } svg text.label.admitted { fill: var(--good); }
svg .line.refused { stroke: var(--bad); } svg text.label.refused { fill: var(--bad); }
svg .line.one { stroke: var(--c1); } svg text.label.one { fill: var(--c1); }
svg .line.c0 { stroke: var(--c0); } svg text.label.c0 { fill: var(--c0); }
svg .line.c1 { stroke: var(--c1); } svg text.label.c1 { fill: var(--c1); }
svg .line.c2 { stroke: var(--c2); } svg text.label.c2 { fill: var(--c2); }
svg .line.c3 { stroke: var(--c3); } svg text.label.c3 { fill: var(--c3); }
.dot.admitted { fill: var(--good); } .dot.refused { fill: var(--bad); }
.dot.one, .dot.c1 { fill: var(--c1); } .dot.c0 { fill: var(--c0); } .dot.c2 { fill: var(--c2); }
.dot.c3 { fill: var(--c3); }
.fill.used { fill: var(--c1); } .fill.over { fill: var(--bad); }
.numbers b.bad { color: var(--bad); }
form.search { align-items: center; display: flex; flex-wrap: wrap; gap: 8px; margin: 16px 0; }
form.search input { flex: 1 1 260px; }
"""


def render(
    page: str, parts: Mapping[str, str], *, who: str = "", live: bool = True, title: str = ""
) -> str:
    """Return a page; `who` has logged in, where people do."""
    title = title or PAGES[page]
    links = "".join(_link(name, here=name == page) for name in PAGES)
    state = '<span class="state"></span>'
    if live:
        state += '<button id="pause" type="button" aria-pressed="false">Pause</button>'
    leave = ""
    if who:
        button = f"<button>Log out {escape(who)}</button>"
        leave = f'<form method="post" action="/logout">{button}</form>'
    head = (
        f"<header><div><strong>Sluicegate</strong><nav>{links}</nav>"
        f"{state if live else ''}{leave}</div></header>"
    )
    body = [f"<h1>{escape(title)}</h1>"]
    body += [f'<div id="{name}">{part}</div>' for name, part in parts.items()]
    return render_page(
        f"{title} - Sluicegate",
        body,
        _STYLE,
        head=head,
        script=SCRIPT if live else "",
        served=True,
    )


def _link(page: str, *, here: bool) -> str:
    path = "" if page == "overview" else page
    current = ' aria-current="page"' if here else ""
    return f'<a href="/{path}"{current}>{escape(PAGES[page])}</a>'


def going_on(sentence: Sentence) -> str:
    """Return the sentence at the top, with the way to more of it."""
    more = f' <a href="/{sentence.page}">{escape(PAGES[sentence.page])}</a>'
    return (
        f'<p class="going-on {sentence.urgency.value}" role="status">'
        f"{escape_words(sentence.words)}{more}</p>"
    )


def login(next_path: str, mistake: str = "") -> str:
    """Return the page that asks who one is."""
    wrong = f'<p class="bad" role="alert">{escape(mistake)}</p>' if mistake else ""
    form = (
        '<form class="search" method="post" action="/login">'
        f'<input type="hidden" name="next" value="{escape(next_path)}">'
        '<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" autofocus '
        "required><button>Log in</button></form>"
        '<p class="quiet">A token of the access file (--access), with the grant audit; '
        "sluicegate console --new-token makes one.</p>"
    )
    return render_page("Log in - Sluicegate", ["<h1>Log in</h1>", wrong, form], _STYLE, served=True)
