"""Limiter commands: all that can be said to a rate-limit service."""

from __future__ import annotations

from typing import Final

from headgate.doors.resp import checks, stores
from headgate.doors.resp.commands import CONNECTION
from headgate.doors.resp.table import ONE_KEY, Row, Table

LIMITER: Final = Table(
    (
        *CONNECTION,
        # It counts its words itself, to complain as redis-cell does.
        Row("CL.THROTTLE", 1, 0, False, checks.throttle, "May it enter, at this rate?", ONE_KEY),
        Row("HG.CHECK", 3, 0, False, checks.check, "May it enter? Counts it", ONE_KEY),
        Row("HG.PEEK", 3, 0, False, checks.peek, "What HG.CHECK would answer", ONE_KEY),
        Row("HG.RESET", 3, 0, False, checks.reset, "Forgets what was counted", ONE_KEY),
        Row("HG.LEASE", 4, 0, False, checks.lease, "Takes units in advance", ONE_KEY),
        Row("HG.GIVEBACK", 3, 3, False, checks.give_back, "Gives back units of a lease"),
        Row("HG.TAKE", 4, 0, False, stores.take, "A store's take, for limiters elsewhere"),
        Row("HG.TAKESOME", 3, 0, False, stores.take_some, "Likewise: take_some"),
        Row("HG.SETTLE", 3, 0, False, stores.settle, "Likewise: settle"),
        Row("HG.FORGET", 2, 0, False, stores.forget, "Likewise: reset"),
    ),
    stores.kept_limits,
)
