"""Frame: what stands around every page: where one is, what is going on, the way to other pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, Protocol
from urllib.parse import quote

from sluicegate.apps.console.script import SCRIPT
from sluicegate.apps.console.sentence import Sentence
from sluicegate.command_line.page import escape_words, render_page
from sluicegate.contracts.access import Identity

PAGES: Final[Mapping[str, str]] = {
    "overview": "Overview",
    "callers": "Callers",
    "hot-keys": "Hot keys",
    "queues": "Queues",
    "rules": "Rules",
    "accounts": "Accounts",
    "images": "Images",
    "dead-letters": "Dead letters",
    "nodes": "Nodes",
    "why": "Why",
    "changes": "Changes",
    "emergency": "Emergency",
}
# Those that are there only where the settings say so, and the setting.
OPTIONAL: Final[Mapping[str, str]] = {
    "changes": "--rulebook URL",
    "emergency": "--glass URL",
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
@media (min-width: 900px) { nav { flex: 1 1 0; } }
nav a { border-radius: 6px; padding: 6px; text-decoration: none; }
nav a[aria-current] { background: var(--soft); color: var(--ink); font-weight: 600; }
header form, header .state { margin-left: auto; }
header .state + form { margin-left: 0; }
button, input, select { background: var(--paper); border: 1px solid var(--muted);
  border-radius: 6px; color: var(--ink); font: inherit; padding: 6px 12px; }
button { cursor: pointer; }
main { max-width: 1280px; padding: 20px 24px 64px; }
section { margin-top: 20px; padding-top: 16px; }
h2, h3 { overflow-wrap: anywhere; }
.state { color: var(--muted); font-size: 13.5px; }
.state::before { content: "not live"; }
body.live .state::before { color: var(--good); content: "live"; }
body.lost .state::before { color: var(--bad); content: "connection lost, trying again"; }
body.paused .state::before { content: "paused"; }
.going-on { border-left: 6px solid var(--good); background: var(--soft);
  border-radius: 0 6px 6px 0; font-size: 17px; margin: 0; max-width: none; padding: 12px 16px; }
.going-on.defending { border-color: var(--warn); }
.going-on.alarm { border-color: var(--bad); }
.numbers { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(110px, 1fr));
  list-style: none; margin: 16px 0 0; padding: 0; }
.numbers li { display: flex; } #span { margin-top: 12px; }
.numbers a { border: 1px solid var(--grid); border-radius: 8px; color: var(--ink); flex: 1;
  padding: 8px 12px; text-decoration: none; }
.numbers a:hover { border-color: var(--link); }
.numbers b { display: block; font-size: 19px; font-variant-numeric: tabular-nums;
  font-weight: 600; white-space: nowrap; }
.numbers span { color: var(--muted); font-size: 13px; }
.charts { display: grid; gap: 8px 28px;
  grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); }
.charts h2 { font-size: 15px; }
td svg { margin: 0; width: 120px; }
svg .spark { fill: none; stroke: var(--c1); stroke-width: 1.5; }
svg[data-plot] { cursor: crosshair; touch-action: pan-y; }
.cursor { stroke: var(--muted); visibility: hidden; } .reading .cursor { visibility: visible; }
.readout { color: var(--muted); font-size: 13px; font-variant-numeric: tabular-nums; margin: 0;
  min-height: 1.5em; }
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
textarea { background: var(--paper); border: 1px solid var(--muted); border-radius: 6px;
  color: var(--ink); display: block; font: 13.5px/1.5 ui-monospace, monospace; margin: 6px 0 10px;
  padding: 10px; resize: vertical; tab-size: 2; width: 100%; }
.two { display: grid; gap: 10px; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr));
  margin-bottom: 10px; }
.two input, .lines input:not([type]) { display: block; width: 100%; }
form.lines { display: grid; gap: 10px; grid-template-columns: minmax(0, 1fr);
  justify-items: start; max-width: 560px; }
form.lines label { width: 100%; }
form.act { align-items: end; display: flex; flex-wrap: wrap; gap: 6px 10px; margin: 8px 0; }
td form.act { margin: 0; }
td form.act input { width: 12em; }
form.lines select { max-width: 100%; } form.lines .two { width: 100%; }
.danger { border-color: var(--bad); color: var(--bad); font-weight: 600; }
.where { align-items: baseline; display: flex; flex-wrap: wrap; gap: 4px 20px;
  margin-bottom: 14px; }
.where form, .where > a:last-child:not(:first-child) { margin: 0 0 0 auto; }
pre { background: var(--soft); border-radius: 6px; font: 13px/1.5 ui-monospace, monospace;
  margin: 8px 0; max-height: 480px; overflow: auto; padding: 10px; }
pre .plus { color: var(--good); } pre .minus { color: var(--bad); }
pre .at { font-style: italic; }
.timeline { border-left: 2px solid var(--grid); list-style: none; margin: 8px 0; padding: 0; }
.timeline li { overflow-wrap: anywhere; padding: 4px 0 4px 16px; position: relative; }
.timeline li::before { background: var(--good); border-radius: 50%; content: ""; height: 9px;
  left: -5.5px; position: absolute; top: 12px; width: 9px; }
.timeline li.refused::before { background: var(--bad); }
.timeline time { color: var(--muted); font-size: 13px; margin-right: 8px; }
.timeline q { color: var(--muted); }
td.name { min-width: 11em; }
@media (max-width: 600px) {
  td.name { min-width: 9em; }
  main { padding: 16px 14px 48px; } header > div { padding: 8px 14px; }
  .charts svg { overflow: visible; } .charts svg text { font-size: 19px; }
}
td > p { min-width: 18em; }
#verdict, #progress { margin-top: 12px; }
@media (min-width: 900px) {
  main:has(#editor) { column-gap: 28px; display: grid; align-items: start;
    grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); grid-auto-flow: dense; }
  main:has(#editor) > * { grid-column: 1 / -1; }
  main:has(#editor) > #edit { grid-column: 1; grid-row: span 2; }
  main > #findings, main > #help { grid-column: 2; }
}
code { font: 13px ui-monospace, monospace; }
tr.now { background: var(--soft); }
meter { vertical-align: middle; width: 120px; }
summary { cursor: pointer; margin-top: 12px; }
"""


class Render(Protocol):
    """Makes a page of its parts, as whoever asks is to see it."""

    def __call__(self, page: str, parts: dict[str, str], by: Identity, *, title: str = "") -> str:
        """Return the page."""
        ...


def render(
    page: str,
    parts: Mapping[str, str],
    *,
    who: str = "",
    live: bool = True,
    title: str = "",
    script: str = "",
    optional: Sequence[str] = (),
) -> str:
    """Return a page; `who` has logged in, where people do; `optional` pages are there, too.

    A page that is live has the script that keeps it so, another has `script`.
    """
    title = title or PAGES[page]
    names = [name for name in PAGES if name not in OPTIONAL or name in optional]
    links = "".join(_link(name, here=name == page) for name in names)
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
        script=SCRIPT if live else script,
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


def login(next_path: str, mistake: str = "", *, provider: str = "") -> str:
    """Return the page that asks who one is; `provider` is where one may log in, too."""
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
    there = (
        f'<p><a href="/login/oidc?next={escape(quote(next_path))}">Log in at '
        f"{escape(provider)}</a></p>"
        if provider
        else ""
    )
    parts = ["<h1>Log in</h1>", wrong, there, form]
    return render_page("Log in - Sluicegate", parts, _STYLE, served=True)


def logged_in(path: str) -> str:
    """Return the page that goes on to where one wanted to go."""
    go_on = f'<p><a href="{escape(path)}">Go on</a></p>'
    page = render_page("Logged in - Sluicegate", ["<h1>Logged in</h1>", go_on], _STYLE, served=True)
    refresh = f'<meta http-equiv="refresh" content="0;url={escape(path)}">'
    return page.replace("<head>", f"<head>{refresh}", 1)
