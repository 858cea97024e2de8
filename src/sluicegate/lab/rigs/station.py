"""Station: the rig that several scenarios share, one kind of work before workers of 10 ms each.

Its callers wait for half a second. What a scenario changes (arrivals, workers, course, retries) it
says itself; the first second is not counted.
"""

from __future__ import annotations

from typing import Any, Final

from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.rig import Rig, WorkKind

WORKERS: Final = 32
CAPACITY_PER_S: Final = WORKERS * 100
TIMEOUT_US: Final = 500_000


def station(arrivals: Arrivals, *, workers: int = WORKERS, span_s: int = 4, **settings: Any) -> Rig:
    """Return the rig with these arrivals; `settings` are fields of `Rig`."""
    return Rig(
        kinds=(WorkKind(name="get", arrivals=arrivals, timeout_us=TIMEOUT_US),),
        workers=workers,
        span_us=span_s * 1_000_000,
        warm_us=1_000_000,
        **settings,
    )
