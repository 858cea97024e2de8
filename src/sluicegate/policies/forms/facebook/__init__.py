"""Facebook's form: CoDel with two timeouts, adaptive LIFO, and a watermark that rejects early.

Sources: Maurer, "Fail at Scale" (2015), as built into Airbnb's service platform ("Building Services
at Airbnb, Part 3", He and Guo, 2018). The words of the latter:

    controlled delay queue    N is the normal timeout of a queued request; while the queue has not
                              been empty for N, the timeout is M, which is shorter
    adaptive LIFO             first in, first out; last in, first out while a queue builds up
    back pressure             a queue that has reached the high watermark rejects incoming requests
                              until it has fallen to the low one

Classes have no influence here. Stages, in the order of a `Stack`: the watermark, the queue.
"""

from __future__ import annotations

from sluicegate.policies.forms.facebook.form import (
    FacebookForm,
    FacebookSettings,
    FacebookWatermark,
)

__all__ = ["FacebookForm", "FacebookSettings", "FacebookWatermark"]
