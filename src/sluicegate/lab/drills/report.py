"""Report: an outcome as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from sluicegate.lab.drills.drill import Drill, DrillBar, DrillOutcome, DrillSetting
from sluicegate.lab.text import format_number

VERSION: Final = 1  # of what programs read


def text_lines(drill: Drill, setting: DrillSetting, outcome: DrillOutcome) -> Iterator[str]:
    """Yield the lines of a report for people."""
    yield f"{drill.name}: {drill.title}"
    yield f"  {drill.why}"
    width = max((len(name) for name in outcome.figures), default=0)
    for name, value in outcome.figures.items():
        yield f"  {name:<{width}}  {_value(value)}"
    for note in outcome.notes:
        yield f"  {note}"
    for reason in outcome.void:
        yield f"  VOID    {reason}"
    for bar in outcome.bars:
        yield f"  {_word(bar, outcome)}  {render_bar(bar)}"
    if outcome.void:
        yield "  The run is void: it says nothing. Give the machine to it, and try again."


def render_bar(bar: DrillBar) -> str:
    """Return one bar as text."""
    side = "at most" if bar.at_most is not None else "at least"
    return f"{bar.claim}: {_with_unit(bar.value, bar)}, {side} {_with_unit(bar.bound, bar)}"


def as_json(drill: Drill, setting: DrillSetting, outcome: DrillOutcome) -> dict[str, Any]:
    """Return a report for programs; infinity and NaN are null."""
    return {
        "version": VERSION,
        "drill": drill.name,
        "seconds": setting.seconds,
        "policy": setting.policy,
        "seed": setting.seed,
        "held": outcome.passed,
        "void": outcome.void,
        "notes": outcome.notes,
        "figures": {name: _finite(value) for name, value in outcome.figures.items()},
        "bars": [
            {
                "claim": bar.claim,
                "value": _finite(bar.value),
                "at_most": bar.at_most,
                "at_least": bar.at_least,
                "unit": bar.unit,
                "met": bar.met,
                "control": bar.must_miss,
            }
            for bar in outcome.bars
        ],
    }


def _word(bar: DrillBar, outcome: DrillOutcome) -> str:
    if outcome.void:
        return "(void)"
    if bar.must_miss:
        return "MET, though it was to fail" if bar.met else "missed, as it must be"
    return "met   " if bar.met else "MISSED"


def _with_unit(value: float, bar: DrillBar) -> str:
    if bar.unit == "%":
        return f"{value:.2%}" if isfinite(value) else "never"
    return f"{_value(value)} {bar.unit}".rstrip()


def _value(value: float) -> str:
    return format_number(value) if isfinite(value) else "never"


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
