"""Engine health: what readiness and liveness report of an engine that opens itself again."""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Engine, EngineHealth, health_of

# A disk that recovers does so within seconds; after this long a restart is the better hope.
UNUSABLE_US_MAX: Final = 30_000_000


@final
class EngineHealthWatch:
    """Whether an engine is usable, and since when it is not, as the probes see it."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._since_us = 0

    def look(self) -> EngineHealth:
        """Return its health now."""
        health = health_of(self._engine)
        if not health.unusable:
            self._since_us = 0
        elif not self._since_us:
            self._since_us = self._clock.now_us()
        return health

    def not_ready(self) -> str:
        """Why the service should get no traffic; empty if its engine is usable."""
        why = self.look().unusable
        return f"the engine {self._engine.name}: {why}" if why else ""

    def not_alive(self) -> str:
        """Why only a restart can help; empty while the engine may recover by itself."""
        why = self.not_ready()
        lost = why and self._clock.now_us() - self._since_us >= UNUSABLE_US_MAX
        return why if lost else ""
