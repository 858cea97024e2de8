"""Client: calls to a fleet of hosts over a network that loses, with all that a smart client has.

fallback (if there is one) around retry, around hedge, and for each attempt breaker, client
throttle and balance. Hosts are slow, paused, fail, refuse, say that a quota is spent, or are not
reached. Callers may give up at any await.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.request import Request
from sluicegate.lab.durations import Exponential
from sluicegate.lab.hunt.record import CANCELLED, DONE, HuntRecord, HuntUnit
from sluicegate.lab.hunt.setup import HuntLoad, Setup
from sluicegate.lab.hunt.stage import MS, active, play_callers, recheck, speeds_of
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.world import World
from sluicegate.policies.client.balance import Balance
from sluicegate.policies.client.breaker import Breaker, BreakerPermit
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of
from sluicegate.policies.client.client_throttle import ClientThrottle, ClientThrottlePermit
from sluicegate.policies.client.fallback import Fallback
from sluicegate.policies.client.hedge import Hedge, HedgeSettings
from sluicegate.policies.client.retry import Retry, RetrySettings
from sluicegate.policies.client.retry_budget import RetryBudgets, RetryBudgetSettings

SHARD: Final = "fleet"
# What a host answers at once when that fault acts on it.
AT_ONCE: Final = {
    "fail": ResultKind.FAILED,
    "refuse": ResultKind.OVERLOADED,
    "limit": ResultKind.LIMITED,
    "unreached": ResultKind.UNREACHED,
}
FAILURES_IN_ROW: Final = 5
ONE: Final = 1_000  # a repeat, in the budget's thousandths
SETTLE_US: Final = 120_000_000


@final
@dataclass(slots=True)
class _Call:
    """One call, and how often its work was begun."""

    request: Request
    load: HuntLoad
    unit: HuntUnit
    begun: int = 0


@final
class _Client:
    """The policies of a client, the hosts, and the callers."""

    def __init__(self, world: World, setup: Setup, record: HuntRecord) -> None:
        self.world, self.setup, self.record = world, setup, record
        knob, chance = setup.knob, world.chance
        self.hosts = [f"h{number}" for number in range(knob("hosts", 5))]
        budget = RetryBudgetSettings()
        self.budgets = RetryBudgets(budget)
        self.breaker = Breaker(chance("breaker"))
        self.throttle = ClientThrottle(chance("throttle"))
        self.balance = Balance(self.hosts, chance("balance"))
        self.retry = Retry(chance("retry"), RetrySettings(base_us=knob("base_us", 20_000)))
        self.retry.budgets = self.budgets
        self.hedge = Hedge(self.budgets, HedgeSettings(samples_min=knob("hedge_from", 50)))
        self.fallback: Fallback[object] = Fallback()
        service = Exponential(float(knob("service_us", 5_000)))
        self.service_us = {host: service.sampler(chance(f"service/{host}")) for host in self.hosts}
        self.courses: dict[str, SpeedProfile] = dict(speeds_of(setup, self.hosts))
        self.draw = chance("fate").draw
        self.failures: dict[str, int] = {}  # by operation: what a breaker may open on
        self.calling = self.attempting = 0
        self.paid_in: dict[str, int] = {}  # by class, in thousandths of a repeat
        self.repeats: dict[str, int] = {}

    async def one(self, number: int, load: HuntLoad) -> None:
        clock = self.world.clock
        now_us = clock.now_us()
        deadline_us = now_us + load.timeout_ms * MS if load.timeout_ms else None
        request = Request(
            f"k{int(self.draw() * load.keys)}",
            caller=load.name,
            criticality=load.allowed,
            arrived_us=now_us,
            deadline_us=deadline_us,
            operation=load.name,
            shard=SHARD,
        )
        unit = HuntUnit(number, now_us, deadline_us)
        self.record.units.append(unit)
        call = _Call(request, load, unit)
        self.calling += 1
        unit.status = CANCELLED
        arrived_at_us = self.world.elapsed_us
        paid = self.paid_in.get(load.criticality, 0)
        self.paid_in[load.criticality] = paid + self.budgets.settings.deposit_milli
        try:
            if self.setup.knob("fallback", 0):
                await self.fallback.call(
                    lambda _: self._retried(call), request, clock, default=lambda: -1
                )
            else:
                await self._retried(call)
            unit.status = DONE
        except Refused:
            unit.status = DONE
        finally:
            self.calling -= 1
            unit.ended_us = clock.now_us()
            unit.waited_us = self.world.elapsed_us - arrived_at_us

    async def _retried(self, call: _Call) -> CallResult[object]:
        idempotent = call.load.idempotent
        clock = self.world.clock

        async def hedged(attempt: int) -> CallResult[object]:
            if attempt:
                self._repeat(call)

            async def sent(number: int) -> CallResult[object]:
                if number:
                    self._repeat(call)
                return await result_of(self._attempt(call))

            return await self.hedge.call(sent, call.request, clock, idempotent=idempotent)

        return await self.retry.call(hedged, call.request, clock, idempotent=idempotent)

    def _repeat(self, call: _Call) -> None:
        of = call.load.criticality
        self.repeats[of] = self.repeats.get(of, 0) + 1

    async def _attempt(self, call: _Call) -> CallResult[object]:
        """Ask the policies of one attempt, and send it."""
        request, clock = call.request, self.world.clock
        now_us = clock.now_us()
        if request.deadline_us is not None and now_us >= request.deadline_us:
            late_us = now_us - request.deadline_us
            self.record.add_violation(
                "in time", f"an attempt began {late_us:,} us after the deadline"
            )
        gate = self.breaker.admit(request, now_us)
        if isinstance(gate, Decision):
            raise Refused(gate)
        throttle = self.throttle.admit(request, now_us)
        if isinstance(throttle, Decision):
            gate.end(CallResult(ResultKind.CANCELLED).outcome, now_us, spent=False)
            raise Refused(throttle)
        place = self.balance.admit(request, now_us)
        if isinstance(place, Decision):
            gate.end(CallResult(ResultKind.CANCELLED).outcome, now_us, spent=False)
            throttle.end(CallResult(ResultKind.CANCELLED).outcome, now_us, spent=False)
            raise Refused(place)
        self.attempting += 1
        answer: CallResult[object] = CallResult(ResultKind.CANCELLED)
        try:
            answer = await self._ask(call, place.host)
            return answer
        finally:
            self.attempting -= 1
            now_us = clock.now_us()
            place.end_with(answer, now_us)
            if isinstance(throttle, ClientThrottlePermit):
                throttle.end_with(answer, now_us)
            if answer.is_failure:
                operation = request.operation
                self.failures[operation] = self.failures.get(operation, 0) + 1
            if isinstance(gate, BreakerPermit):
                gate.end_with(answer, now_us)
                if self.draw() < 0.1 and gate.end_with(answer, now_us):
                    self.record.add_violation("ends once", "a breaker's permit ended twice")

    async def _ask(self, call: _Call, host: str) -> CallResult[object]:
        """Over the network and back, or not."""
        elapsed_us, world = self.world.elapsed_us, self.world
        for what, kind in AT_ONCE.items():
            fault = active(self.setup, what, elapsed_us, host)
            if fault is not None and self.draw() * 1_000 < fault.much:
                await world.sleep_us(500)
                hint_us = 50_000 if kind is ResultKind.LIMITED else 0
                if kind is ResultKind.FAILED:
                    self._begin(call)
                return CallResult(kind, retry_after_us=hint_us)
        left_us = call.request.remaining_us(world.clock.now_us())
        timeout_us = self.setup.knob("timeout_us", 200_000)
        if left_us is not None:
            timeout_us = min(timeout_us, left_us)
        lose = active(self.setup, "lose", elapsed_us, host)
        self._begin(call)
        took_us = self.courses[host].end_us(elapsed_us, self.service_us[host]()) - elapsed_us
        if took_us > timeout_us or (lose is not None and self.draw() * 1_000 < lose.much):
            await world.sleep_us(max(timeout_us, 1))
            return CallResult(ResultKind.TIMED_OUT)
        await world.sleep_us(max(took_us, 1))
        return CallResult(ResultKind.OK, 1)

    def _begin(self, call: _Call) -> None:
        call.begun += 1
        if call.begun > 1 and not call.load.idempotent:
            sentence = f"a call that is not idempotent was begun {call.begun} times"
            self.record.add_violation("done once", sentence)

    def disagreements(self) -> Iterator[str]:
        """Counts of the policies, and what is under way."""
        pairs = (
            ("under way at the breaker", self.breaker.stats().inflight),
            ("under way at the throttle", self.throttle.stats().inflight),
            ("under way at the balancer", self.balance.stats().inflight),
        )
        if self.attempting and not self.calling:
            yield f"{self.attempting} attempts are under way, and nobody calls"
        for name, theirs in pairs:
            if theirs != self.attempting:
                yield f"{name}: the policy says {theirs:,}, and there are {self.attempting:,}"


async def play_client(world: World, setup: Setup, record: HuntRecord) -> None:
    """The whole play."""
    client = _Client(world, setup, record)

    async def sample() -> None:
        for sentence in await recheck(client.disagreements):
            record.add_violation("conserved", sentence)
        _check_breakers(client)

    await play_callers(world, setup, client.one, sample)
    _check_budgets(client, world.elapsed_us)
    await world.sleep_us(SETTLE_US)
    record.left["attempts under way"] = client.attempting
    record.left["under way at the breaker"] = client.breaker.stats().inflight
    record.left["under way at the throttle"] = client.throttle.stats().inflight
    record.left["under way at the balancer"] = client.balance.stats().inflight
    record.left["under way at the retry"] = client.retry.stats().inflight
    record.left["running at the hedge"] = client.hedge.stats().running
    record.left["running at the fallback"] = client.fallback.stats().running


def _check_budgets(client: _Client, elapsed_us: int) -> None:
    """Over all of the play: what was paid in, and a reserve for each window of nine slices."""
    budget = client.budgets.settings
    reserve = budget.reserve_milli_per_s * (elapsed_us / 0.9 + budget.window_us) / 1e6
    for of, repeats in client.repeats.items():
        allowed = (client.paid_in[of] + reserve) / ONE
        if repeats > allowed:
            sentence = f"{repeats:,} repeats of {of} calls, and the budget allows {allowed:,.0f}"
            client.record.add_violation("not over-admitted", sentence)


def _check_breakers(client: _Client) -> None:
    for key, state in client.breaker.states().items():
        failures = client.failures.get(key[1], 0)
        if state != "closed" and failures < FAILURES_IN_ROW:
            sentence = f"the breaker of {key[1]} is {state} after {failures} failures"
            client.record.add_violation("on evidence", sentence)
