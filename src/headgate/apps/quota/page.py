"""Page: the curve of each caller's month, its quota now and the proposed line, on one page.

The page needs nothing but itself: no script, no font, no address.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from headgate.apps.quota.series import Caller

WIDTH: Final = 900
HEIGHT: Final = 180
CALLERS_MAX: Final = 500
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #1c2733;
  background: #fbfbf9; padding: 0 1rem; }
section { margin: 2.2rem 0; } h2 { margin: 0; font-size: 1.1rem; } p { margin: .2rem 0 .6rem; }
svg { width: 100%; height: auto; background: #fff; border: 1px solid #dfe3e6; }
.use { fill: none; stroke: #2f6f9f; stroke-width: 1.2; }
.now { stroke: #9a9a9a; stroke-dasharray: 5 4; } .new { stroke: #c2561a; stroke-width: 1.6; }
text { font-size: 11px; fill: #55606a; }
@media (prefers-color-scheme: dark) { body { background: #14181c; color: #d8dee4; }
  svg { background: #1a2026; border-color: #303a43; } text { fill: #9aa6b1; } }
"""


def page_of(callers: Sequence[Caller], days: int) -> str:
    """The whole page; those whose quota would change come first."""
    told = sorted(callers, key=lambda one: (one.proposal.quota is None, one.name))[:CALLERS_MAX]
    sections = "\n".join(_section(one, days) for one in told)
    left = len(callers) - len(told)
    more = f"<p>{left:,} more callers are not drawn.</p>" if left else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>Quotas by {days} days of usage</title><style>{_STYLE}</style></head><body>"
        f"<h1>Quotas by {days} days of usage</h1>"
        "<p>Request units a second: what the busiest minute of each hour asked for (blue), the "
        "quota now (grey), the proposed one (orange).</p>"
        f"{sections}{more}</body></html>\n"
    )


def _section(caller: Caller, days: int) -> str:
    proposal = caller.proposal
    head = escape(caller.name)
    change = "stays as it is" if proposal.quota is None else f"{proposal.quota:,} RU/s"
    return (
        f"<section><h2>{head}: {change}</h2><p>{escape(proposal.reason)}</p>"
        f"{chart(caller, days)}</section>"
    )


def chart(caller: Caller, days: int) -> str:
    """One curve and its lines."""
    values = [value for value in caller.hours if value is not None]
    new, now = caller.proposal.quota, caller.current
    top = max([1, *values, new or 0, now or 0]) * 1.08
    step = WIDTH / max(1, len(caller.hours) - 1)

    def y(value: float) -> float:
        return HEIGHT - value / top * (HEIGHT - 14)

    parts: list[str] = []
    run: list[str] = []
    for at, value in enumerate([*caller.hours, None]):
        if value is not None:
            run.append(f"{at * step:.1f},{y(value):.1f}")
        elif run:
            parts.append(f'<polyline class="use" points="{" ".join(run)}"/>')
            run = []
    for name, line in (("now", now), ("new", new)):
        if line is not None:
            height = f"{y(line):.1f}"
            parts.append(f'<line class="{name}" x1="0" x2="{WIDTH}" y1="{height}" y2="{height}"/>')
            parts.append(f'<text x="4" y="{max(10.0, y(line) - 3):.1f}">{line:,}</text>')
    label = f"{caller.name}: {days} days of usage"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )
