"""Page of quotas: what is proposed for each caller, why, and the curve that it follows from.

Names are of whoever calls, so every word of theirs is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from sluicegate.apps.quota.chart import quota_chart
from sluicegate.apps.quota.dates import date_of
from sluicegate.apps.quota.names import display_name
from sluicegate.apps.quota.series import Caller
from sluicegate.command_line.page import cell, color_key, number, quiet, render_page, row, table
from sluicegate.command_line.text import counted

CALLERS_MAX: Final = 500
TIMES_FROM: Final = 10
_STYLE: Final = """
:root { --use: #2f6f9f; --area: #2f6f9f26; --now: #77828d; --new: #b8480f; --weekend: #f3f5f7;
  --unknown: #f1e8cf; }
@media (prefers-color-scheme: dark) { :root { --use: #6db3e4; --area: #6db3e433; --now: #97a3ae;
  --new: #f09050; --weekend: #1e252c; --unknown: #4a4028; } }
a { color: inherit; } b.new { color: var(--new); }
.use { fill: none; stroke: var(--use); stroke-width: 1.2; } .area { fill: var(--area); }
line.now { stroke: var(--now); stroke-dasharray: 6 4; stroke-width: 1.6; }
line.new { stroke: var(--new); stroke-width: 2; } .mark { stroke: var(--muted); }
.weekend { fill: var(--weekend); } .unknown { fill: var(--unknown); }
.fill.use-key { fill: var(--use); } .fill.now { fill: var(--now); } .fill.new { fill: var(--new); }
.fill.weekend { stroke: var(--grid); }
svg text.label { font-size: 12.5px; font-weight: 600; fill: var(--now); }
svg text.label.new { fill: var(--new); }
"""
_KEY: Final = (
    ("use-key", "asked for, the busiest minute of each hour"),
    ("now", "the quota now"),
    ("new", "the proposed quota"),
    ("weekend", "weekend"),
    ("unknown", "nothing recorded"),
)


def page_of(callers: Sequence[Caller], *, first_day: int, days: int) -> str:
    """The whole page; those whose quota would change come first."""
    shown_callers = sorted(callers, key=lambda one: (one.proposal.quota is None, one.name))
    del shown_callers[CALLERS_MAX:]
    left = len(callers) - len(shown_callers)
    changes = sum(one.proposal.quota is not None for one in callers)
    first, last = date_of(first_day), date_of(first_day + days - 1)
    title = f"Quotas by {days} days of usage"
    body = [
        f"<h1>{title}</h1>",
        quiet(
            f"{first} to {last} {last.year}, in UTC. {counted(len(callers), 'caller')}, of which "
            f"{changes:,} would have another quota. Numbers are request units a second."
        ),
        color_key(_KEY),
        _table(shown_callers),
        f"<p>{counted(left, 'more caller')} not shown.</p>" if left else "",
        *[_section(at, one, first_day) for at, one in enumerate(shown_callers)],
    ]
    return render_page(title, body, _STYLE)


def _table(callers: Sequence[Caller]) -> str:
    rows = [
        row(
            cell(f'<a href="#c{at}">{_name(one)}</a>', "name"),
            number(_now(one)),
            cell(_new(one), "number"),
            number(_change(one)),
            number(f"{one.refused_ru:,}"),
        )
        for at, one in enumerate(callers)
    ]
    return table(["caller"], ["now", "proposed", "change", "RU refused"], rows)


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
        f"<p>{escape(one.proposal.reason)}{refused}</p>{quota_chart(one, first_day)}</section>"
    )


def _name(one: Caller) -> str:
    return escape(display_name(one.name))


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
