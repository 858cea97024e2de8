"""Cooperation: refusing is work too, and callers can spare the server most of it.

A refusal costs a twentieth of a unit of work: reading, parsing, answering. At ten times the load a
server that refuses all there is to refuse spends half of itself on it, and nothing it can do by
itself helps: (1 - 0.05 * 10) / 0.95 = 0.53 of its capacity is the most it can answer. Callers who
hold back what would be refused give the other half back. The goal is 0.95 of the capacity, and
hardly more than one refusal for each answer.

The rig: callers who each keep a policy of their own, before a station that refuses.

A call passes its caller's policy first, which may hold it back: that costs the server nothing.
What is sent goes through the server's policy as in the full mode, and is answered, late or refused;
the caller's policy learns which, and a refusal brings the mark that the door of a protected service
adds to it. Callers who send twice what is answered leave 0.952 for answers at most, and those who
are told so send 1.5 times as much, and leave 0.976. A rig is a `Rig`; each caller of a kind is a
process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.policy import Admission, Policy
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.queues import fifo_pool
from sluicegate.lab.clients import Call, run_callers
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import curves as station_curves
from sluicegate.lab.measures import figures
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.shipped import ProtectedStation, protect
from sluicegate.lab.scenario import (
    PLACES,
    Candidate,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)
from sluicegate.lab.task_mode import MakePolicy, PolicyServer
from sluicegate.lab.world import World, run
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.client_throttle import ClientThrottle, ClientThrottlePermit
from sluicegate.resilience.overload_mark import FIELD, parse_overload_mark

MakeCallerPolicy: TypeAlias = Callable[[World, str], Policy]


class CooperationRun(NamedTuple):
    """The ledger of the calls that were sent, and how many were made and held back."""

    ledger: RunLedger
    called: int
    held_back: int


CooperationCandidate: TypeAlias = "Candidate[Rig, CooperationRun]"


def client_throttle(world: World, caller: str) -> ClientThrottle:
    """The production policy with its defaults."""
    return ClientThrottle(world.chance(f"throttle/{caller}"))


@final
class _MarkedRefusals:
    """A protected station, whose refusals carry its mark in the attributes of the request."""

    __slots__ = ("_station",)

    def __init__(self, station: ProtectedStation) -> None:
        self._station = station

    async def admit(self, request: Request, clock: Clock) -> Admission:
        admitted = await self._station.admit(request, clock)
        if isinstance(admitted, Decision):
            mark = self._station.mark_of(admitted, request)
            if mark is not None:
                request.attributes = {FIELD: mark.text()}
        return admitted


def marked(rig: Rig, world: World) -> _MarkedRefusals:
    """What `sluicegate.resilience` puts before an application, and what its door says."""
    return _MarkedRefusals(protect(rig, world))


def result_of(request: Request, *, good: bool) -> CallResult[object]:
    """How a client reads the answer: a refusal without a mark may be anybody's."""
    if good:
        return CallResult(ResultKind.OK)
    mark = parse_overload_mark([request.attributes.get(FIELD, "")])
    if mark is None:
        return CallResult(ResultKind.OVERLOADED, unproven=True)
    return CallResult(ResultKind.OVERLOADED, admitted_permille=mark.admitted_permille)


def policy_candidate(
    make_policy: MakePolicy, make_caller: MakeCallerPolicy | None
) -> CooperationCandidate:
    """A candidate with policies on both sides; without `make_caller` everything is sent."""
    return Candidate(lambda rig, seed: play(rig, make_policy, make_caller, seed))


def play(
    rig: Rig, make_policy: MakePolicy, make_caller: MakeCallerPolicy | None, seed: int
) -> CooperationRun:
    """Play one run."""

    async def main(world: World) -> CooperationRun:
        ledger = RunLedger(rig.kinds, warm_us=rig.warm_us, span_us=rig.span_us)
        server = PolicyServer(world, rig, make_policy(rig, world), ledger)
        callers: list[_ThrottledCalls] = []
        for number, kind in enumerate(rig.kinds):
            call = _ThrottledCalls(world, rig, server.door(number, kind), make_caller)
            callers.append(call)
        await run_callers(world, zip(rig.kinds, callers, strict=True), until_us=rig.span_us)
        called = sum(each.called for each in callers)
        return CooperationRun(ledger, called, sum(each.held_back for each in callers))

    return run(main, seed).value


@final
class _ThrottledCalls:
    """The callers of a kind, each with a policy of its own."""

    def __init__(self, world: World, rig: Rig, call: Call, make: MakeCallerPolicy | None) -> None:
        self._world = world
        self._call = call
        self._make = make
        self._warm_us = rig.warm_us
        self._policies: dict[str, Policy] = {}
        self.called = self.held_back = 0  # after the warm-up

    async def __call__(self, request: Request) -> bool:
        """Return whether the call was answered in time."""
        counts = self._world.elapsed_us >= self._warm_us
        self.called += counts
        if self._make is None:
            return await self._call(request)
        policy = self._policies.get(request.caller)
        if policy is None:
            policy = self._policies[request.caller] = self._make(self._world, request.caller)
        permit = policy.admit(request, self._world.clock.now_us())
        if isinstance(permit, Decision):
            self.held_back += counts
            return False
        return await self._send(request, permit)

    async def _send(self, request: Request, permit: Permit) -> bool:
        clock = self._world.clock
        good = False
        try:
            good = await self._call(request)
        except BaseException:
            permit.end(Outcome.IGNORE, clock.now_us())
            raise
        if isinstance(permit, ClientThrottlePermit):
            permit.end_with(result_of(request, good=good), clock.now_us())
        else:
            permit.end(Outcome.SUCCESS if good else Outcome.DROPPED, clock.now_us())
        return good


def measure(rig: Rig, ended: CooperationRun) -> Figures:
    """The usual, and what the server refused for each that it answered."""
    found = figures(rig, ended.ledger)
    good = sum(row.good for row in ended.ledger.by_kind)
    refused = sum(row.refused for row in ended.ledger.by_kind)
    found["rejects_per_accept"] = refused / good if good else inf
    found["held_back"] = ended.held_back / ended.called if ended.called else 0.0
    return found


def curves(rig: Rig, ended: CooperationRun) -> Curves:
    """Return what the server did over time."""
    return station_curves(rig, ended.ledger)


WORKERS: Final = 16
LOAD: Final = 10
CALLERS: Final = 50

RIG: Final = Rig(
    kinds=(WorkKind(name="get", arrivals=Poisson(LOAD * WORKERS * 100), callers=CALLERS),),
    workers=WORKERS,
    refusal_cost=0.05,
    span_us=14_000_000,
    warm_us=4_000_000,
)

SCENARIO: Final = Scenario(
    number=9,
    name="cooperation",
    title="Ten times the load where refusing is dear, with and without callers' help",
    why="A server must not spend itself on saying no.",
    rigs={"10x": RIG},
    candidates={
        "cooperating": policy_candidate(marked, client_throttle),
        "without-throttle": policy_candidate(marked, None),
        "fifo": policy_candidate(fifo_pool, None),
    },
    ours="cooperating",
    must_fail=("fifo", "without-throttle"),
    own_settings=PLACES,
    goals=(
        Goal(figure="goodput", at_least=0.95),
        Goal(figure="rejects_per_accept", at_most=1.2),
    ),
    measure=measure,
    curves=curves,
    columns=("goodput", "rejects_per_accept", "held_back", "p99_ms", "jain"),
    plots=(PlotSpec("Answered in time", "goodput", "of capacity"),),
    scale="half the workers of the other rigs; 50 callers, each with a throttle of its own",
)
