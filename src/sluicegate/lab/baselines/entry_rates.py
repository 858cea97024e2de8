"""Entry rates: each kind of request has a rate at the entry, changed by what its latency does.

*TopFull* (SIGCOMM 2024) limits APIs where they enter, not the services behind. Once a second it
looks at the tail of the latency against the objective: if it is passed, the API of the lowest
business priority has its rate cut; if not, the one of the highest that is held back gets more. How
much is said by a policy learned by reinforcement, a factor from one half less to one half more.
Written from Park et al., "TopFull: An Adaptive Top-Down Overload Control for SLO-Oriented
Microservices".

What is not the paper's is the learned policy, which is not published as numbers. In its place is
what its reward teaches, goodput gained less what the objective is passed by: a cut by the share of
the latency that is too much, and at least 5%; an increase by a tenth of the share that is left.
So this is TopFull's control, and not its training. It is at its best here: there is one service, so
no clusters of APIs have to be found; every kind is an API, and its class its priority. Behind the
entry is a plain queue that leaves out those whose callers have gone.
"""

from __future__ import annotations

from math import ceil
from typing import Final, final

from sluicegate.lab.baselines.queues import NoControl
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit

STEP_US: Final = 1_000_000
FACTOR_MOST: Final = 0.5
CUT_LEAST: Final = 0.05
RAISE: Final = 0.1
TAIL: Final = 0.95
OBJECTIVE_SERVICES: Final = 10
RATE_MIN: Final = 1.0


def rate_factor(tail_us: float, objective_us: float) -> float:
    """What a rate is multiplied by, for a latency against its objective."""
    if tail_us > objective_us:
        return 1 - min(max(1 - objective_us / tail_us, CUT_LEAST), FACTOR_MOST)
    return 1 + min(RAISE * (1 - tail_us / objective_us), FACTOR_MOST)


@final
class _Api:
    """One kind's rate and tokens, and what came and was held back in this step."""

    __slots__ = ("at_us", "came", "held_back", "rate", "tokens")

    def __init__(self) -> None:
        self.rate = 0.0  # no limit yet
        self.tokens = 0.0
        self.at_us = 0
        self.came = 0
        self.held_back = 0

    def admit(self, now_us: int) -> bool:
        """Count one, and admit it if the rate allows."""
        self.came += 1
        if self.rate == 0.0:
            return True
        gained = self.rate * (now_us - self.at_us) / STEP_US
        self.tokens = min(self.tokens + gained, max(self.rate / 10, 1.0))
        self.at_us = now_us
        if self.tokens < 1.0:
            self.held_back += 1
            return False
        self.tokens -= 1.0
        return True


@final
class TopFull(NoControl):
    """Rates at the entry, before a plain queue."""

    __slots__ = ("_apis", "_end_us", "_latencies", "_objective_us", "_order", "_service_us")

    def __init__(self, classes: list[int], service_us: float) -> None:
        super().__init__()
        self._apis = [_Api() for _ in classes]
        self._order = sorted(range(len(classes)), key=classes.__getitem__)  # the highest first
        self._service_us = service_us
        self._objective_us = OBJECTIVE_SERVICES * service_us
        self._latencies: list[float] = []
        self._end_us = STEP_US

    @property
    def rates(self) -> list[float]:
        """The rate of each kind, a second; 0 is no limit yet."""
        return [api.rate for api in self._apis]

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Append the unit, or refuse it above its kind's rate."""
        if now_us >= self._end_us:
            self._step(now_us)
        (self.units if self._apis[unit.kind].admit(now_us) else lost).append(unit)

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest, and note how long it will have taken."""
        while self.units:
            unit = self.units.popleft()
            self._latencies.append(now_us - unit.arrived_us + self._service_us)
            if now_us < unit.deadline_us:
                return unit
            lost.append(unit)
        return None

    def _step(self, now_us: int) -> None:
        waited = sorted(self._latencies)
        tail_us = waited[ceil(TAIL * len(waited)) - 1] if waited else 0.0
        factor = rate_factor(tail_us, self._objective_us)
        if factor < 1:
            self._cut(factor)
        else:
            self._raise(factor)
        for api in self._apis:
            api.came = api.held_back = 0
        self._latencies.clear()
        self._end_us = now_us + STEP_US

    def _cut(self, factor: float) -> None:
        for kind in reversed(self._order):
            api = self._apis[kind]
            let_in = float(api.came - api.held_back)
            if let_in > RATE_MIN:
                api.rate = max(min(api.rate or let_in, let_in) * factor, RATE_MIN)
                return

    def _raise(self, factor: float) -> None:
        for kind in self._order:
            api = self._apis[kind]
            if api.held_back:
                api.rate *= factor
                return


def top_full(rig: Rig) -> TopFull:
    """Return a rate for each of the rig's kinds."""
    return TopFull([int(kind.criticality) for kind in rig.kinds], rig.service.mean_us)
