"""Connection pace: how long a connection rests because of who speaks on it.

A connection of HTTP or gRPC may be a proxy's, with requests of many callers, and a connection that
is not read holds up all of them. So it rests only when each caller that ever spoke on it is far
over its quota, and for no longer than the least of their delays. A stranger, whom no token names,
does not keep it from resting: whatever it asks is refused. Where only strangers speak, the refusals
of this connection slow them, and never those of another.

Bounds: `CALLERS_MAX` callers are known of a connection, and one with more never rests.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.policies.quota.refusal_pace import RefusalPace

CALLERS_MAX: Final = 8
_STRANGER: Final = ""


def is_over_quota(error: BaseException) -> bool:
    """Whether it says that the caller's quota is spent, or could never pay for this."""
    return isinstance(error, Refused) and error.decision.reason in (QUOTA_SPENT, COST_ABOVE_LIMIT)


@final
class ConnectionPace:
    """The pace of one connection, by the callers that speak on it."""

    __slots__ = ("_callers", "_clock", "_pace", "_refused", "_strangers")

    def __init__(self, pace: RefusalPace, clock: Clock) -> None:
        self._pace = pace
        self._clock = clock
        self._callers: list[str] = []
        self._strangers: RefusalPace | None = None  # made by the first refusal of a stranger
        self._refused = False  # somebody, since it was last asked for a rest

    def identify(self, caller: str) -> None:
        """Note who speaks."""
        callers = self._callers
        if caller not in callers and len(callers) <= CALLERS_MAX:
            callers.append(caller)

    def record_served(self, caller: str) -> None:
        """Record a request that was served."""
        pace = self._pace
        if caller in pace.due_us:
            pace.record(caller, 1, 0, self._clock.now_us())

    def record_refused(self, caller: str) -> int:
        """Record a request refused for its caller's quota; return the delay that follows."""
        now_us = self._clock.now_us()
        self._refused = True
        self._pace.record(caller, 0, 1, now_us)
        return self._delay_us(now_us)

    def record_stranger(self) -> None:
        """Record a request that was refused since nobody knows who asks."""
        strangers = self._strangers
        if strangers is None:
            strangers = self._strangers = RefusalPace(self._pace.settings)
        self._refused = True
        strangers.record(_STRANGER, 0, 1, self._clock.now_us())

    def rest_us(self) -> int:
        """How long the connection is to rest now, which is counted; 0 nearly always."""
        if not self._refused:
            return 0
        self._refused = False
        delay_us = self._delay_us(self._clock.now_us())
        if delay_us > 0:
            self._pace.count(delay_us)
        return delay_us

    def _delay_us(self, now_us: int) -> int:
        callers = self._callers
        if not callers:
            strangers = self._strangers
            return 0 if strangers is None else strangers.delay_us(_STRANGER, now_us)
        if len(callers) > CALLERS_MAX:
            return 0
        return min([self._pace.delay_us(caller, now_us) for caller in callers])
