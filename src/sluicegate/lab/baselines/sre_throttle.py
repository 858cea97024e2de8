"""SRE client throttling: a caller holds back what the server would refuse (Beyer et al., 2016).

Written from chapter 21 of "Site Reliability Engineering": over the last two minutes a caller counts
what it asked for and what was accepted, and refuses its own calls with

    p = max(0, (requests - K * accepts) / (requests + 1)),  K = 2

It is a client's policy, one for each caller, and not a line before a server's workers. It is strong
and simple: whatever the load, the server sees about one refusal for each acceptance. It is not
quick to believe that the server is well again (two minutes have to pass), knows no class, and has
no probe.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import CLIENT_THROTTLED
from sluicegate.contracts.request import Request

HISTORY_US: Final = 120_000_000
K: Final = 2.0


@final
class SreThrottle:
    """The throttle of one caller."""

    __slots__ = ("_accepts", "_chance", "_requests")

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._requests: deque[int] = deque()
        self._accepts: deque[int] = deque()

    def admit(self, request: Request, now_us: int) -> SrePermit | Decision:
        """Admit or hold back; it counts as a request either way."""
        for instants in (self._requests, self._accepts):
            while instants and instants[0] <= now_us - HISTORY_US:
                instants.popleft()
        requests, accepts = len(self._requests), len(self._accepts)
        self._requests.append(now_us)
        if self._chance.draw() < (requests - K * accepts) / (requests + 1):
            return Decision(False, 0, 0, 0, CLIENT_THROTTLED, "sre")
        return SrePermit(self)

    def record_acceptance(self, now_us: int) -> None:
        """Count a call that the server took."""
        self._accepts.append(now_us)


@final
class SrePermit:
    """One call that was sent."""

    __slots__ = ("_throttle",)

    def __init__(self, throttle: SreThrottle) -> None:
        self._throttle: SreThrottle | None = throttle

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Count it as accepted unless it was lost to overload."""
        throttle, self._throttle = self._throttle, None
        if throttle is None:
            return False
        if outcome is not Outcome.DROPPED:
            throttle.record_acceptance(now_us)
        return True
