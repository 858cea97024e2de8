"""Picture: the useful work of each candidate in each shape, as a share of the oracle's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sluicegate.lab.charts import Panel, panels_file
from sluicegate.lab.zoo.bars import Judged, useful
from sluicegate.lab.zoo.play import FOUND, KNOWN, ORACLE
from sluicegate.lab.zoo.simple import SIMPLE

_X = "shapes, the worst of each candidate first"


def draw(judged: Sequence[Judged]) -> str:
    """Return the picture as SVG: one line a candidate over its shapes, the worst first."""
    return panels_file("Useful work as a share of the oracle's", _panels(judged))


def _panels(judged: Sequence[Judged]) -> Iterator[Panel]:
    parts = {
        "a load the service can carry": [one for one in judged if not one.shape.overload],
        "overload, limit known": [o for o in judged if o.shape.overload and o.mode == KNOWN],
        "overload, limit found": [o for o in judged if o.shape.overload and o.mode == FOUND],
    }
    for title, every in parts.items():
        rows = [one for one in every if not one.shape.limit]
        lines = {
            name: [*enumerate(sorted(_of_oracle(one, name) for one in rows), 1)]
            for name in ("product", *SIMPLE)
        }
        yield Panel(title, "share", _X, lines, controls=("nothing",))


def _of_oracle(one: Judged, name: str) -> float:
    found = one.outcomes.get(one.mode if name == "product" else name)
    if found is None:
        return 1.0
    oracle = useful(one.shape, one.outcomes[ORACLE], one.window_us)
    return min(1.0, useful(one.shape, found, one.window_us) / oracle) if oracle else 1.0
