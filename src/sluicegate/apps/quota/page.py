"""Page: what is proposed for each caller, why, and the curve that it follows from.

The page needs nothing but itself: no script, no font, no address. Names are of whoever calls, so
every word of theirs is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from sluicegate.apps.quota.chart import chart
from sluicegate.apps.quota.dates import date_of
from sluicegate.apps.quota.names import shown
from sluicegate.apps.quota.series import Caller
from sluicegate.command_line.text import counted

CALLERS_MAX: Final = 500
TIMES_FROM: Final = 10
_STYLE: Final = """
:root { --ink: #1c2733; --soft: #5b6773; --paper: #f7f8f9; --card: #fff; --edge: #dde2e7;
  --grid: #e9edf0; --use: #2f6f9f; --area: #2f6f9f26; --now: #77828d; --new: #b8480f;
  --weekend: #f3f5f7; --unknown: #f1e8cf; }
@media (prefers-color-scheme: dark) { :root { --ink: #dbe2e8; --soft: #97a3ae; --paper: #12161a;
  --card: #1a2026; --edge: #303a43; --grid: #262e36; --use: #6db3e4; --area: #6db3e433;
  --now: #97a3ae; --new: #f09050; --weekend: #1e252c; --unknown: #4a4028; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }
h1 { margin: 0 0 .3rem; font-size: 1.5rem; } h2 { margin: 0; font-size: 1.1rem; }
p { margin: .2rem 0 .7rem; } .soft { color: var(--soft); }
.name { overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 1.2rem 0; width: 100%; }
th, td { text-align: right; padding: .3rem .8rem; border-bottom: 1px solid var(--edge);
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
a { color: inherit; } b.new { color: var(--new); }
section { margin: 1.4rem 0; padding: 1rem 1.2rem; background: var(--card);
  border: 1px solid var(--edge); border-radius: 8px; }
svg { width: 100%; height: auto; display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; font-size: .85rem;
  color: var(--soft); }
.legend i { display: inline-block; width: 1.4rem; height: 0; margin-right: .4rem;
  vertical-align: middle; border-top: 2px solid var(--use); }
.legend i.now { border-top: 2px dashed var(--now); } .legend i.new { border-color: var(--new); }
.legend i.weekend, .legend i.unknown { height: .8rem; border: 1px solid var(--edge);
  background: var(--weekend); } .legend i.unknown { background: var(--unknown); }
.use { fill: none; stroke: var(--use); stroke-width: 1.2; } .area { fill: var(--area); }
line.now { stroke: var(--now); stroke-dasharray: 6 4; stroke-width: 1.6; }
line.new { stroke: var(--new); stroke-width: 2; } .grid { stroke: var(--grid); }
.mark { stroke: var(--soft); } .weekend { fill: var(--weekend); }
.unknown { fill: var(--unknown); }
text { font-size: 11.5px; fill: var(--soft); } text.end { text-anchor: end; }
text.label { font-size: 12.5px; font-weight: 600; fill: var(--now); }
text.label.new { fill: var(--new); }
"""
_LEGEND: Final = (
    '<p class="legend"><span><i></i>asked for, the busiest minute of each hour</span>'
    '<span><i class="now"></i>the quota now</span>'
    '<span><i class="new"></i>the proposed quota</span>'
    '<span><i class="weekend"></i>weekend</span>'
    '<span><i class="unknown"></i>nothing recorded</span></p>'
)


def page_of(callers: Sequence[Caller], *, first_day: int, days: int) -> str:
    """The whole page; those whose quota would change come first."""
    told = sorted(callers, key=lambda one: (one.proposal.quota is None, one.name))[:CALLERS_MAX]
    left = len(callers) - len(told)
    more = f"<p>{counted(left, 'more caller')} not shown.</p>" if left else ""
    changes = sum(one.proposal.quota is not None for one in callers)
    first, last = date_of(first_day), date_of(first_day + days - 1)
    span = f"{first} to {last} {last.year}, in UTC"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Quotas by {days} days of usage</title><style>{_STYLE}</style></head><body>"
        f"<h1>Quotas by {days} days of usage</h1>"
        f'<p class="soft">{span}. {counted(len(callers), "caller")}, of which '
        f"{changes:,} would have another quota. Numbers are request units a second.</p>"
        f"{_LEGEND}{_table(told)}{more}"
        f"{''.join(_section(at, one, first_day) for at, one in enumerate(told))}"
        "</body></html>\n"
    )


def _table(callers: Sequence[Caller]) -> str:
    rows = "".join(
        f'<tr><td class="name"><a href="#c{at}">{_name(one)}</a></td><td>{_now(one)}</td>'
        f"<td>{_new(one)}</td><td>{_change(one)}</td><td>{one.refused_ru:,}</td></tr>"
        for at, one in enumerate(callers)
    )
    return (
        "<table><thead><tr><th>caller</th><th>now</th><th>proposed</th><th>change</th>"
        f"<th>RU refused</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _section(at: int, one: Caller, first_day: int) -> str:
    """One caller: the change, the reason, the curve."""
    new = one.proposal.quota
    if new is None:
        change = "stays as it is"
    elif one.current is None:
        change = f'<b class="new">{new:,}</b> RU/s'
    else:
        change = f'{one.current:,} &rarr; <b class="new">{new:,}</b> RU/s ({_change(one)})'
    refused = f" {one.refused_ru:,} RU were refused." if one.refused_ru else ""
    return (
        f'<section id="c{at}"><h2><span class="name">{_name(one)}</span>: {change}</h2>'
        f"<p>{escape(one.proposal.reason)}{refused}</p>{chart(one, first_day)}</section>"
    )


def _name(one: Caller) -> str:
    return escape(shown(one.name))


def _now(one: Caller) -> str:
    if one.current is None:
        return "-"
    return f"{one.current:,}" if one.named else f"{one.current:,} (default)"


def _new(one: Caller) -> str:
    return "stays" if one.proposal.quota is None else f'<b class="new">{one.proposal.quota:,}</b>'


def _change(one: Caller) -> str:
    """By how much it would change: in percent, or how many times as much it is."""
    new = one.proposal.quota
    if new is None or not one.current:
        return ""
    if new >= TIMES_FROM * one.current:
        return f"x{new // one.current:,}"
    return f"{100 * (new - one.current) / one.current:+.0f}%"
