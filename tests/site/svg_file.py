"""SVG file: a drawing of the chart kit as a file of its own, readable in light and dark."""

from __future__ import annotations

from typing import Final

from sluicegate.lab import charts

STYLE: Final = (
    charts.theme_style()
    + """\
text { fill: var(--ink); font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
text.axis { fill: var(--muted); font-size: 12px; } text.end { text-anchor: end; }
text.mid { text-anchor: middle; } text.name { font-weight: 600; }
.paper { fill: var(--paper); } .grid { stroke: var(--grid); }
.fill.stays { fill: var(--grid); }
.bound { stroke: var(--ink); stroke-dasharray: 5 4; }
.line { fill: none; stroke-linejoin: round; stroke-width: 2; } .thin { stroke-width: 1; }
"""
    + "".join(
        f".line.{kind} {{ stroke: var(--{hue}); }} "
        f"text.{kind}, .dot.{kind}, .fill.{kind} {{ fill: var(--{hue}); }} "
        f".band.{kind} {{ fill: var(--{hue}); opacity: 0.16; }}\n"
        for kind, hue in (
            ("a", "ours"), ("b", "must-fail"), ("c", "hue-0"), ("d", "hue-1"), ("e", "hue-2"),
            ("quiet", "muted"),
        )
    )
)  # fmt: skip


def svg_file(drawn: str, description: str, style: str = STYLE) -> str:
    """Return the file; readers of screens are told the title, and then the description."""
    return charts.svg_file(drawn, description, style)
