"""Limiter commands: all that can be said to a rate-limit service."""

from __future__ import annotations

from typing import Final

from sluicegate.doors.resp import checks, stores
from sluicegate.doors.resp.commands import CONNECTION
from sluicegate.doors.resp.table import ONE_KEY, Row, Table

LIMITER: Final = Table(
    (
        *CONNECTION,
        # It counts its words itself, to complain as redis-cell does.
        Row("CL.THROTTLE", 1, 0, False, checks.throttle, "May it enter, at this rate?", ONE_KEY),
        Row("SG.CHECK", 3, 0, False, checks.check, "May it enter? Counts it", ONE_KEY),
        Row("SG.PEEK", 3, 0, False, checks.peek, "What SG.CHECK would answer", ONE_KEY),
        Row("SG.RESET", 3, 0, False, checks.reset, "Forgets what was counted", ONE_KEY),
        Row("SG.LEASE", 4, 0, False, checks.lease, "Takes units in advance", ONE_KEY),
        Row("SG.GIVEBACK", 3, 3, False, checks.give_back, "Gives back units of a lease"),
        Row("SG.TAKE", 4, 0, False, stores.take, "A store's take, for limiters elsewhere"),
        Row("SG.TAKESOME", 3, 0, False, stores.take_some, "Likewise: take_some"),
        Row("SG.SETTLE", 3, 0, False, stores.settle, "Likewise: settle"),
        Row("SG.FORGET", 2, 0, False, stores.forget, "Likewise: reset"),
    ),
    stores.kept_limits,
)
