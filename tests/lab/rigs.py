"""Small rigs that several tests share. Nothing here is a test."""

from __future__ import annotations

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.rig import Rig, WorkKind


def small(load: float, **changes: object) -> Rig:
    """32 workers of 10 ms at `load` of their capacity for two seconds, half of one not counted."""
    settings: dict[str, object] = {
        "kinds": (WorkKind(name="get", arrivals=Poisson(load * 3_200), callers=10),),
        "span_us": 2_000_000,
        "warm_us": 500_000,
    }
    return Rig(**{**settings, **changes})  # type: ignore[arg-type]
