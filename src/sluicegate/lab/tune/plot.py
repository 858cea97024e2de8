"""The plot of a sweep: one figure against the other, a dot a point, the frontier as a line."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.plots_style import INK, MUST_FAIL, MUTED, OURS, THICK, drawing, png
from sluicegate.lab.text import slug
from sluicegate.lab.tune.sweep import Frontier, PointResult, SettingsSweep


def draw(
    sweep: SettingsSweep, results: Sequence[PointResult], found: Frontier, folder: Path
) -> Path:
    """The PNG, and its path."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue("--out", str(folder), f"give a folder to write into ({error})") from error
    with drawing() as figure_class:
        figure = figure_class(figsize=(7.2, 4.4), layout="constrained")
        ax = figure.subplots()
        ax.grid(visible=True, axis="both")
        line = [results[at] for at in found.points]
        ax.plot([one.x for one in line], [one.y for one in line], color=OURS, linewidth=THICK / 2)
        xs = [one.x for one in results if isfinite(one.x)] or [0.0]
        middle = (min(xs) + max(xs)) / 2
        for at, one in sorted(enumerate(results), key=lambda pair: pair[0] != found.knee):
            if not (isfinite(one.x) and isfinite(one.y)):
                continue
            knee = at == found.knee
            colour = MUST_FAIL if one.missed else OURS if at in found.points else MUTED
            ax.plot(
                [one.x],
                [one.y],
                color=colour,
                marker="x" if one.missed else "o",
                markersize=9 if knee else 5,
                linestyle="none",
            )
            if knee or (at in found.points and len(found.points) <= 8):
                text = ", ".join(change.text() for change in one.point)
                right = one.x > middle  # then the text stand to the left
                ax.annotate(
                    f"knee: {text}" if knee else text,
                    (one.x, one.y),
                    xytext=(-8 if right else 8, 8),
                    textcoords="offset points",
                    ha="right" if right else "left",
                    fontsize=8.5 if knee else 7.5,
                    color=INK if knee else MUTED,
                    fontweight="bold" if knee else "normal",
                )
        ax.margins(0.12)
        ax.set_xlabel(sweep.x.text())
        ax.set_title(sweep.y.text(), loc="left", fontsize=9, color=MUTED)
        if any(one.missed for one in results):
            ax.set_title("x misses a goal", loc="right", fontsize=8.5, color=MUST_FAIL)
        figure.suptitle(sweep.title, x=0.01, ha="left", fontsize=11, color=INK)
        path = folder / f"{slug(sweep.name)}-sweep.png"
        path.write_bytes(png(figure))
        return path
