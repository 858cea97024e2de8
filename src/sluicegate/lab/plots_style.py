"""The style of plots: colours, lines and letters, as PNG on white and as SVG in a page's colours.

The one module that touches matplotlib's machinery. It is imported when something is drawn, and not
before: it takes most of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any, Final

from sluicegate.contracts.errors import MissingPackage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER: Final = "#ffffff"
INK: Final = "#1c2024"
MUTED: Final = "#6a727d"
GRID: Final = "#e4e7eb"
OURS: Final = "#0b62ad"
MUST_FAIL: Final = "#cf4a1c"
HUES: Final = ("#008a63", "#a8548c", "#8a7500", "#3a9bc7", "#7a5c3e", "#7d858f")
_VARIABLES: Final = {
    PAPER: "paper",
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    OURS: "ours",
    MUST_FAIL: "must-fail",
    **{hue: f"hue-{number}" for number, hue in enumerate(HUES)},
}
DARK: Final = {
    "paper": "#16191d",
    "ink": "#e6e8ea",
    "muted": "#98a1ab",
    "grid": "#2c3238",
    "ours": "#5aa9ee",
    "must-fail": "#f0835a",
    "hue-0": "#3fbf95",
    "hue-1": "#d78abc",
    "hue-2": "#c4ac35",
    "hue-3": "#7cc8ea",
    "hue-4": "#b8977a",
    "hue-5": "#98a1ab",
}
LIGHT: Final = {name: colour for colour, name in _VARIABLES.items()}
_GOOD: Final = ("#1a7f4b", "#56c98d")  # light and dark

THICK: Final = 2.6  # ours
THIN: Final = 1.2
DPI: Final = 160

_SETTINGS: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.solid_capstyle": "round",
    "path.simplify_threshold": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "sluicegate",
    "xtick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "xtick.major.size": 3.0,
    "ytick.color": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0.0,
}


def theme_style() -> str:
    """The colours as variables of a page's style sheet, light and dark."""
    light, dark = (
        "; ".join(f"--{name}: {colour}" for name, colour in {**theme, "good": good}.items())
        for theme, good in zip((LIGHT, DARK), _GOOD, strict=True)
    )
    return f":root {{ {light}; }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}\n"


def available() -> bool:
    """Whether anything can be drawn here."""
    return find_spec("matplotlib") is not None


def need() -> None:
    """Say which extra is missing, before any work is done for nothing."""
    if not available():
        raise MissingPackage("matplotlib", "lab")


@contextmanager
def drawing() -> Iterator[type[Figure]]:
    """The class of figures; what is made inside is made in our style, and nothing else is."""
    need()
    matplotlib = import_module("matplotlib")
    figure: type[Figure] = import_module("matplotlib.figure").Figure
    with matplotlib.rc_context(_SETTINGS):
        yield figure


def png(figure: Figure) -> bytes:
    """As a PNG, on white."""
    out = BytesIO()
    with drawing():
        figure.savefig(out, format="png", dpi=DPI, facecolor=PAPER, metadata={"Software": None})
    return out.getvalue()


def svg(figure: Figure, name: str, title: str) -> str:
    """As SVG to stand in a page; `name` keeps its parts apart from those of other pictures."""
    out = StringIO()
    with drawing():  # text stays text: found, read aloud, drawn in the reader's own letters
        figure.savefig(out, format="svg")
    return inline(out.getvalue(), name, title)


def inline(drawn: str, name: str, title: str) -> str:
    """The picture without its prolog, its colours as variables, its parts named after `name`."""
    text = drawn[drawn.index("<svg") :]
    text = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL
    )
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"#[0-9a-f]{6}\b", _variable, text)
    text = re.sub(r"'DejaVu Sans'(, [^;\"]+)?", "var(--font)", text)
    # Numbers to a hundredth of a point are finer than any screen.
    text = re.sub(r"(\d+\.\d{2})\d+", r"\1", text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    label = escape(title, quote=True)
    return re.sub(
        r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{label}"', text
    )


def _variable(found: re.Match[str]) -> str:
    name = _VARIABLES.get(found[0])
    return found[0] if name is None else f"var(--{name})"
