"""Limiter commands: all that can be words to a rate-limit service."""

from __future__ import annotations

from typing import Final

from sluicegate.doors.resp.connection_commands import CONNECTION
from sluicegate.doors.resp.limiter import checks, stores
from sluicegate.doors.resp.session import ONE_KEY, Command, CommandTable

LIMITER: Final = CommandTable(
    (
        *CONNECTION,
        # It counts its words itself, to complain as redis-cell does.
        Command(
            "CL.THROTTLE", 1, 0, False, checks.throttle, "May it enter, at this rate?", ONE_KEY
        ),
        Command("SG.CHECK", 3, 0, False, checks.check, "May it enter? Counts it", ONE_KEY),
        Command("SG.PEEK", 3, 0, False, checks.peek, "What SG.CHECK would answer", ONE_KEY),
        Command("SG.RESET", 3, 0, False, checks.reset, "Forgets what was counted", ONE_KEY),
        Command("SG.LEASE", 4, 0, False, checks.lease, "Takes units in advance", ONE_KEY),
        Command("SG.GIVEBACK", 3, 3, False, checks.give_back, "Gives back units of a lease"),
        Command("SG.TAKE", 4, 0, False, stores.take, "A store's take, for limiters elsewhere"),
        Command("SG.TAKESOME", 3, 0, False, stores.take_some, "Likewise: take_some"),
        Command("SG.SETTLE", 3, 0, False, stores.settle, "Likewise: settle"),
        Command("SG.FORGET", 2, 0, False, stores.forget, "Likewise: reset"),
    ),
    stores.new_limit_memo,
)
