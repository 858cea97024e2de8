"""Queue: which form, whether it turns round and how soon, and how long a newcomer may wait.

What was seen, one seed, milliseconds at twice the load; `near` is what is answered in time at 0.95
of the capacity with 10 ms of work, `slow` the same with 100 ms (folly's rule in `codel`'s place):

    form      standing  normal  aggressive    refused, p99    p99    near    slow
    codel     none                                    11.5     57    .993    .986
    codel     0, 20, 100                              11.5     47    .988    .977
    folly     none                                    11.5     57    .993    .986
    folly     0, 20, 100                             108       47    .989    .977
    facebook  none          20          10            10.5     57
    facebook  100           50          10            10.5     47
    facebook  100          100          15            15.5     47    .988    .952
    facebook  20            20          10            10.5     47    .974    .932

A queue that turns round answers 9 ms sooner beyond the capacity, whatever `standing_us` is, and
answers less up to it. Folly's rule tells late there: it looks at the oldest, whom its own drops
keep young, so about every fifth interval is judged calm, and for 100 ms nobody is told; `codel`
holds its verdict. Short fixed timeouts tell at once too, and refuse what a wait would have served
where the work is slow. In order is the default: the most up to the capacity, where a service should
live.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.tune.defaults import SettingChange
from sluicegate.lab.tune.sweep import Axis, Point, SettingsSweep

MODULE: Final = "sluicegate.policies.queue.queue"
US_PER_MS: Final = 1_000


def point(
    form: str,
    *,
    standing_ms: int | None,
    normal_ms: int | None = None,
    aggressive_ms: int | None = None,
) -> Point:
    """These defaults of the queue's settings."""
    values: dict[str, object] = {
        "form": form,
        "standing_us": None if standing_ms is None else standing_ms * US_PER_MS,
    }
    if normal_ms is not None and aggressive_ms is not None:
        values["normal_us"] = normal_ms * US_PER_MS
        values["aggressive_us"] = aggressive_ms * US_PER_MS
    return tuple(
        SettingChange(MODULE, "QueueSettings", field, value) for field, value in values.items()
    )


SWEEP: Final = SettingsSweep(
    name="queue",
    title="The queue's form, whether it turns round, and its timeouts",
    points=(
        *(point("codel", standing_ms=standing) for standing in (None, 0, 20, 100)),
        *(point("folly", standing_ms=standing) for standing in (None, 100)),
        *(
            point("facebook", standing_ms=standing, normal_ms=normal, aggressive_ms=aggressive)
            for standing in (None, 100)
            for normal, aggressive in ((20, 10), (50, 10), (100, 15))
        ),
    ),
    cases={"overload": ("2x",), "queues": ("2x",), "step": (), "retry-storm": ("budget",)},
    x=Axis("queues", "2x", "refused_p99_ms"),
    y=Axis("overload", "2x", "p99_ms"),
    candidate="queue",
)
