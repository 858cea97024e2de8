"""Small guards for tests of doors: real limiters, and some that misbehave on purpose."""

from __future__ import annotations

from sluicegate import Claim, Limiter
from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.guard import Judgement
from sluicegate.testing import HandClock


class ByAddress:
    """Counts each address by one rule, but not what lies under `/free`."""

    def __init__(self, rule: str = "2/minute", limiter: Limiter | None = None) -> None:
        self.limiter = limiter or Limiter(rules={"pages": rule}, clock=HandClock())
        self.rule = "pages"
        self.lines: list[str] = []

    def key(self, arrival: Arrival) -> str:
        """Whom to count."""
        return arrival.address()

    def judge(self, arrival: Arrival) -> Judgement | None:
        self.lines.append(f"{arrival.method} {arrival.path}")
        if arrival.path.startswith("/free"):
            return None
        return self.limiter.judge(Claim(self.key(arrival), self.rule))

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        self.lines.append(f"{arrival.method} {arrival.path}")
        if arrival.path.startswith("/free"):
            return None
        return await self.limiter.ajudge(Claim(self.key(arrival), self.rule))


class ByUser(ByAddress):
    """Counts each user; who is nobody counts by address."""

    def key(self, arrival: Arrival) -> str:
        return arrival.user() or arrival.address()


class ByHeader(ByAddress):
    """Counts each value of `x-api-key`."""

    def key(self, arrival: Arrival) -> str:
        return arrival.header("x-api-key")


class Broken:
    """A guard that fails with what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or Unavailable("the store", "nobody answers")

    def judge(self, arrival: Arrival) -> Judgement | None:
        raise self.error

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        raise self.error
