"""Picture: the useful work of each candidate in each shape, as a share of the oracle's."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.lab.plots_style import HUES, MUST_FAIL, MUTED, OURS, drawing, png
from sluicegate.lab.zoo.bars import Judged, useful
from sluicegate.lab.zoo.play import FOUND, KNOWN, ORACLE
from sluicegate.lab.zoo.simple import SIMPLE


def draw(judged: Sequence[Judged]) -> bytes:
    """Return the picture as PNG: one line a candidate over its shapes, the worst first."""
    parts = [
        ("a load the service can carry", [one for one in judged if not one.shape.overload]),
        ("overload, limit known", [o for o in judged if o.shape.overload and o.mode == KNOWN]),
        ("overload, limit found", [o for o in judged if o.shape.overload and o.mode == FOUND]),
    ]
    colors = dict(zip(SIMPLE, (MUST_FAIL, *HUES), strict=False))
    with drawing() as figure_class:
        figure = figure_class(figsize=(10.0, 3.6), layout="constrained")
        for ax, (title, every) in zip(
            figure.subplots(1, len(parts), sharey=True), parts, strict=True
        ):
            rows = [one for one in every if not one.shape.limit]
            for name, hue in (*colors.items(), ("product", OURS)):
                ratios = sorted(_of_oracle(one, name) for one in rows)
                ours = name == "product"
                ax.plot(
                    range(1, len(ratios) + 1),
                    ratios,
                    label=name,
                    linewidth=2.6 if ours else 1.0,
                    color=hue,
                )
            ax.set_title(title, loc="left", fontsize=9, color=MUTED)
            ax.set_xlabel("shapes, the worst of each candidate first")
            ax.set_ylim(0, 1.05)
        figure.axes[0].set_ylabel("useful work, of the oracle's")
        figure.axes[0].legend(fontsize=8, frameon=False, loc="lower right")
        return png(figure)


def _of_oracle(one: Judged, name: str) -> float:
    found = one.outcomes.get(one.mode if name == "product" else name)
    if found is None:
        return 1.0
    oracle = useful(one.shape, one.outcomes[ORACLE], one.window_us)
    return min(1.0, useful(one.shape, found, one.window_us) / oracle) if oracle else 1.0
