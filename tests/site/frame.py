"""Frame: what stands around every page of the site: navigation, search, style; all of it ours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --muted: #5d6670; --soft: #f4f6f8;
  --grid: #d9dee3; --link: #1d5fa8; }
@media (prefers-color-scheme: dark) { :root { --paper: #16191d; --ink: #e8eaed; --muted: #a3acb5;
  --soft: #20252b; --grid: #363d45; --link: #7db7f5; } }
* { box-sizing: border-box; }
body { background: var(--paper); color: var(--ink); font: 16px/1.6 system-ui, sans-serif;
  margin: 0; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { left: -999px; position: absolute; } .skip:focus { left: 8px; top: 8px; }
.all { display: grid; gap: 0 40px; grid-template-columns: 280px minmax(0, 1fr); margin: 0 auto;
  max-width: 1240px; padding: 0 24px; }
aside { border-right: 1px solid var(--grid); font-size: 14.5px; height: 100vh; overflow-y: auto;
  padding: 20px 16px 40px 0; position: sticky; top: 0; }
.menu { display: none; }
aside strong { font-size: 18px; } aside strong a { color: inherit; text-decoration: none; }
aside ul { list-style: none; margin: 2px 0 8px; padding: 0 0 0 12px; }
aside li a { color: var(--ink); display: block; padding: 2px 6px; text-decoration: none;
  border-radius: 4px; overflow-wrap: anywhere; }
aside li a:hover, aside li a[aria-current] { background: var(--soft); }
aside li a[aria-current] { font-weight: 600; }
summary { cursor: pointer; font-weight: 600; padding: 3px 0; }
input { background: var(--paper); border: 1px solid var(--muted); border-radius: 6px;
  color: var(--ink); font: inherit; margin: 12px 0; padding: 7px 10px; width: 100%; }
#found { list-style: none; padding: 0; } #found small { color: var(--muted); display: block; }
main { max-width: 860px; padding: 12px 0 80px; }
h1 { line-height: 1.25; } h2 { border-bottom: 1px solid var(--grid); margin-top: 1.8em; }
h1, h2, h3 { overflow-wrap: anywhere; scroll-margin-top: 12px; }
code { background: var(--soft); border-radius: 4px; font: 0.88em ui-monospace, monospace;
  overflow-wrap: anywhere; padding: 1px 4px; }
pre { background: var(--soft); border-radius: 8px; overflow-x: auto; padding: 14px 16px; }
pre code { background: none; font-size: 13.5px; line-height: 1.5; overflow-wrap: normal;
  padding: 0; }
td code { overflow-wrap: normal; }
pre .at { color: var(--muted); user-select: none; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 15px; margin: 12px 0; }
th, td { border: 1px solid var(--grid); padding: 6px 10px; text-align: left; vertical-align: top; }
th { background: var(--soft); }
img { border: 1px solid var(--grid); height: auto; max-width: 100%; }
dt { margin-top: 1.4em; } dd { margin: 6px 0 0; white-space: pre-line; }
@media (max-width: 820px) { .all { display: block; padding: 0 16px; }
  aside { border: 0; border-bottom: 1px solid var(--grid); height: auto; padding: 14px 0;
    position: static; }
  .menu { display: inline; margin-left: 16px; } aside input { margin-bottom: 0; }
  nav { display: none; margin-top: 12px; } nav:target { display: block; } }
nav[hidden] { display: none !important; }
"""
SCRIPT: Final = """
const box = document.getElementById("search"), list = document.getElementById("found");
const nav = document.getElementById("nav"), root = document.documentElement.dataset.root;
function find(query) {
  const words = query.toLowerCase().split(/\\s+/).filter(Boolean);
  if (!words.length) return [];
  const hits = [];
  for (const [url, title, heading, text] of window.SEARCH) {
    const names = (title + " " + heading).toLowerCase(), all = names + " " + text.toLowerCase();
    if (!words.every((word) => all.includes(word))) continue;
    const named = words.filter((word) => names.includes(word)).length;
    const score = named * 10 + (heading && named ? 1 : 0) - text.length / 1e5;
    hits.push([score, url, title, heading, text]);
  }
  return hits.sort((a, b) => b[0] - a[0]).slice(0, 20).map((hit) => [words[0], ...hit.slice(1)]);
}
function show() {
  const hits = find(box.value);
  nav.hidden = box.value.trim() !== "";
  list.replaceChildren(...hits.map(([word, url, title, heading, text]) => {
    const item = document.createElement("li"), link = document.createElement("a");
    const words = document.createElement("small");
    link.href = root + url;
    link.textContent = heading && heading !== title ? title + ": " + heading : title;
    const before = Math.max(text.toLowerCase().indexOf(word) - 40, 0);
    const at = before ? text.indexOf(" ", before) + 1 : 0;
    words.textContent = text.slice(at, at + 120);
    item.append(link, words);
    return item;
  }));
  if (nav.hidden && !hits.length) list.textContent = "Nothing has all these words.";
}
box.addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); }
});
show();
"""


class NavEntry(NamedTuple):
    """A page in the navigation."""

    url: str
    title: str


def render(
    title: str, body: str, url: str, sections: Sequence[tuple[str, Sequence[NavEntry]]]
) -> str:
    """Return a page of the site."""
    root = "../" * url.count("/")
    nav = "".join(_section(name, entries, url, root) for name, entries in sections)
    return (
        f'<!doctype html><html lang="en" data-root="{root}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - Sluicegate</title>"
        f'<link rel="stylesheet" href="{root}style.css"></head><body>'
        '<a class="skip" href="#content">To the content</a><div class="all"><aside>'
        f'<strong><a href="{root}index.html">Sluicegate</a></strong>'
        '<a class="menu" href="#nav">All pages</a>'
        '<input id="search" type="search" placeholder="Search: press /" aria-label="Search">'
        '<ul id="found" aria-live="polite"></ul>'
        f'<nav id="nav" aria-label="Pages">{nav}</nav></aside>'
        f'<main id="content">{body}</main></div>'
        f'<script src="{root}index.js"></script><script src="{root}search.js"></script>'
        "</body></html>\n"
    )


def _section(name: str, entries: Sequence[NavEntry], url: str, root: str) -> str:
    here = any(entry.url == url for entry in entries)
    links = "".join(
        f'<li><a href="{root}{entry.url}"{" aria-current=page" * (entry.url == url)}>'
        f"{escape(entry.title)}</a></li>"
        for entry in entries
    )
    shown = " open" if here or name == "Start here" else ""
    return f"<details{shown}><summary>{escape(name)}</summary><ul>{links}</ul></details>"
