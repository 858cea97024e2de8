"""Tenants: several callers before the same workers, each asking for work of its own size.

A kind's `cost` is in request units here; each takes `ru_us` of a worker in the mean, all of them
drawn, so a scan of 200 takes about 200 times as long as a read, and a single read's time varies. A
candidate is a policy for each request and one for each of the parts that it is cut into; a part
that is refused after the first is tried again after the time that the refusal names, until the
deadline.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld, WaitingPolicy
from sluicegate.contracts.reasons import QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.fixed_window import FixedWindow
from sluicegate.lab.backend import Backend
from sluicegate.lab.baselines.queues import QueuedPool
from sluicegate.lab.clients import run_callers
from sluicegate.lab.durations import Constant
from sluicegate.lab.ledger import BUCKET_US
from sluicegate.lab.measures import quantile
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.scenario import candidate_maker
from sluicegate.lab.speed_profile import STEADY, SpeedProfile
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.quota.work_shape import WorkShape
from sluicegate.policies.stack import Stack, at_once, waits
from sluicegate.testing import START_US

Cut: TypeAlias = Callable[[Request], Iterable[Request]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """Who comes, and the workers that they share."""

    kinds: tuple[WorkKind, ...]
    workers: int = 32
    ru_us: float = 2_000.0
    speed_profile: SpeedProfile = STEADY
    span_us: int = 6_000_000
    warm_us: int = 1_000_000

    def __post_init__(self) -> None:
        if not self.kinds:
            raise BadValue("kinds", self.kinds, "give at least one kind of work")
        if not 0 <= self.warm_us < self.span_us:
            raise BadValue("warm_us", self.warm_us, f"give 0 to below span_us ({self.span_us})")

    @property
    def capacity_ru_per_s(self) -> float:
        """What all workers can do at speed 1."""
        return self.workers * 1e6 / self.ru_us

    def capacity_us(self) -> float:
        """Work that can be done in what is counted."""
        return self.workers * self.speed_profile.work_us(self.warm_us, self.span_us)

    def alone(self, kind: str) -> Tenants:
        """The same with that kind only."""
        return replace(self, kinds=tuple(one for one in self.kinds if one.name == kind))


def whole(request: Request) -> Iterable[Request]:
    """One part, which is the request itself."""
    return (request,)


class TenantGate(NamedTuple):
    """What stands before the workers: a policy for each part, and one for a whole request."""

    each: WaitingPolicy
    once: WaitingPolicy | None = None
    cut: Cut = whole


MakeGate: TypeAlias = Callable[[Tenants, World], TenantGate]


@final
class TenantAccount:
    """What became of one kind; only what came and ended after the warm-up, but for the buckets."""

    def __init__(self, buckets: int) -> None:
        self.offered = 0
        self.good = 0
        self.late = 0
        self.refused = 0
        self.worked_us = 0  # workers' time at speed 1, that of what failed later included
        self.useful_us = 0  # of requests that were answered in time
        self.good_us_at: list[list[int]] = [[] for _ in range(buckets)]

    def success(self) -> float:
        """Of those that ended, the part that was answered in time; none if none did."""
        ended = self.good + self.late + self.refused
        return self.good / ended if ended else 0.0

    def good_us(self, begin_us: int = 0, end_us: int | None = None) -> list[int]:
        """How long those took that were answered in time between the two instants."""
        end = None if end_us is None else end_us // BUCKET_US
        return [*chain(*self.good_us_at[begin_us // BUCKET_US : end])]


class TenantsRun(NamedTuple):
    """An account for each kind."""

    seed: int
    accounts: list[TenantAccount]


def play(rig: Tenants, make_gate: MakeGate, seed: int) -> TenantsRun:
    """Play one run."""

    async def main(world: World) -> list[TenantAccount]:
        server = _TenantServer(world, rig, make_gate(rig, world))
        pairs = zip(rig.kinds, server.accounts, strict=True)
        calls = [(kind, server.door(kind, account)) for kind, account in pairs]
        await run_callers(world, calls, until_us=rig.span_us)
        return server.accounts

    return TenantsRun(seed, run(main, seed).value)


@lru_cache(maxsize=64)
def alone_p99_us(rig: Tenants, kind: str, seed: int) -> float:
    """The p99 of that kind when nobody else is there and nothing stands before the workers."""
    result = play(
        rig.alone(kind), lambda rig, world: TenantGate(QueuedPool(rig.workers)), seed
    ).accounts[0]
    return quantile(result.good_us(rig.warm_us), 0.99)


@final
class _TenantServer:
    """A gate, the workers behind it, and the accounts."""

    def __init__(self, world: World, rig: Tenants, gate: TenantGate) -> None:
        self._world = world
        self._rig = rig
        self._gate = gate
        self._backend = Backend(
            world, Constant(0), workers=rig.workers, speed_profile=rig.speed_profile
        )
        buckets = rig.span_us // BUCKET_US + 1
        self.accounts = [TenantAccount(buckets) for _ in rig.kinds]

    def door(self, kind: WorkKind, account: TenantAccount) -> Callable[[Request], Awaitable[None]]:
        """What the callers of a kind call."""
        draw = self._world.chance(f"work/{kind.name}").draw
        mean_us = -self._rig.ru_us

        def work_us(ru: int) -> int:
            return int(mean_us * sum([math.log(1.0 - draw()) for _ in range(ru)]) + 0.5)

        async def answer(request: Request) -> None:
            await self._answer(request, account, work_us)

        return answer

    async def _answer(
        self, request: Request, account: TenantAccount, work_us: Callable[[int], int]
    ) -> None:
        world, once = self._world, self._gate.once
        counted = world.elapsed_us >= self._rig.warm_us
        account.offered += counted
        permit = None
        if once is not None:
            admission = await once.admit(request, world.clock)
            if isinstance(admission, Decision):
                account.refused += counted
                return
            permit = admission
        outcome, spent = Outcome.IGNORE, True  # cancelled
        try:
            done_us, outcome = await self._work(request, account, work_us)
            spent = done_us > 0
            if spent:
                request.measured = Measured(done_us, rows=request.cost)
        finally:
            if permit is not None:
                permit.end(outcome, world.clock.now_us(), spent=spent)
        now_us = world.elapsed_us
        if not spent:
            account.refused += counted
        elif outcome is Outcome.SUCCESS:
            took_us = now_us + START_US - request.arrived_us
            account.good_us_at[now_us // BUCKET_US].append(took_us)
            account.good += counted
            account.useful_us += done_us * (now_us >= self._rig.warm_us)
        else:
            account.late += counted

    async def _work(
        self, request: Request, account: TenantAccount, work_us: Callable[[int], int]
    ) -> tuple[int, Outcome]:
        """Do it part by part: how much was done, and whether it was done in time."""
        world, done_us = self._world, 0
        for part in self._gate.cut(request):
            permit = await self._gate.each.admit(part, world.clock)
            while isinstance(permit, Decision):
                now_us = world.clock.now_us()
                left_us = request.remaining_us(now_us)
                if not done_us or left_us is None or not 0 <= permit.retry_after_us < left_us:
                    return done_us, Outcome.DROPPED
                await world.sleep_us(max(permit.retry_after_us, 1))
                permit = await self._gate.each.admit(part, world.clock)
            part_us, outcome = work_us(rows_of(part)), Outcome.IGNORE
            begun_us = world.elapsed_us
            try:
                await self._backend.serve(part_us)
                outcome = Outcome.SUCCESS
            finally:
                took_us = world.elapsed_us - begun_us
                part.measured = Measured(took_us, rows=rows_of(part))
                permit.end(outcome, world.clock.now_us())
            done_us += part_us
            if world.elapsed_us >= self._rig.warm_us:
                account.worked_us += part_us
        in_time = request.deadline_us is None or world.clock.now_us() <= request.deadline_us
        return done_us, Outcome.SUCCESS if in_time else Outcome.DROPPED


def rows_of(part: Request) -> int:
    """How many request units a part is: what it was cut to, or all of it."""
    rows = part.attributes.get("rows")
    return part.cost if rows is None else int(rows)


CHUNK_RU: Final = 10
# By the default weights a read of one row costs 1 for the request, 1 for the row, and its time.
READ_RU: Final = 2.2


def shape_of(request: Request) -> WorkShape:
    """A request unit of the rig is a row."""
    return WorkShape(rows=rows_of(request))


def units_of(rig: Tenants, share: float = 1.0) -> RequestUnits:
    """Return a budget for each tenant, of that share of what the workers can do."""
    rate_ru = round(share * READ_RU * rig.capacity_ru_per_s)
    return RequestUnits(RequestUnitsSettings(rate_ru=rate_ru), shape_of=shape_of)


def chunked(*, ru: int = CHUNK_RU, share: float = 1.0, classes: bool = True) -> MakeGate:
    """Request units, and a queue that parts of `ru` enter one by one.

    With `ru=0` nothing is cut; without `classes` all requests are of the same class.
    """

    def make(rig: Tenants, world: World) -> TenantGate:
        units = units_of(rig, share)
        charge = at_once("request units", units)
        queue = Gate(GateSettings(slots=rig.workers))
        once = [charge] if classes else [charge, at_once("no classes", _AllAlike())]
        return TenantGate(queue, Stack(*once), partial(units.chunks, ru=ru) if ru else whole)

    return make


def pooled(settings: RequestUnitsSettings) -> MakeGate:
    """Request units alone, as they are set; then first come, first served."""

    def make(rig: Tenants, world: World) -> TenantGate:
        units = RequestUnits(settings, shape_of=shape_of)
        return TenantGate(
            Stack(at_once("request units", units), waits("pool", QueuedPool(rig.workers)))
        )

    return make


def guarded(settings: RequestUnitsSettings) -> MakeGate:
    """Budgets, and the queue behind them."""

    def make(rig: Tenants, world: World) -> TenantGate:
        units = RequestUnits(settings, shape_of=shape_of)
        queue = Gate(GateSettings(slots=rig.workers))
        return TenantGate(Stack(at_once("request units", units), waits("queue", queue)))

    return make


SECOND_US: Final = 1_000_000


@final
class QpsQuota:
    """A baseline: at most `per_s` requests of each caller in each second of the clock.

    A multi-tenant store begins with it, as Mussel did. It does not notice that one request costs
    two hundred times another.
    """

    __slots__ = ("_per_s", "_windows")

    def __init__(self, per_s: int) -> None:
        if per_s < 1:
            raise BadValue("per_s", per_s, "give at least 1")
        self._per_s = per_s
        self._windows: dict[str, FixedWindow] = {}

    def admit(self, request: Request, now_us: int) -> NothingHeld | Decision:
        """Count the request, or refuse it until the next second."""
        window = self._windows.get(request.caller)
        if window is None:
            window = self._windows[request.caller] = FixedWindow(self._per_s, SECOND_US)
        verdict = window.take(1, now_us)
        if verdict.allowed:
            return NOTHING_HELD
        return Decision(
            False, 0, verdict.retry_after_us, verdict.reset_after_us, QUOTA_SPENT, "qps_quota"
        )


def ru_quota(rig: Tenants, world: World) -> TenantGate:
    """Request units alone: each tenant may spend half of what there is; then first come."""
    return TenantGate(QueuedPool(rig.workers), Stack(at_once("request units", units_of(rig, 0.5))))


def qps_quota(rig: Tenants, world: World) -> TenantGate:
    """Each tenant may send half as many as single reads could be answered; then first come."""
    quota = QpsQuota(round(rig.capacity_ru_per_s / 2))
    return TenantGate(QueuedPool(rig.workers), Stack(at_once("quota", quota)))


def fifo(rig: Tenants, world: World) -> TenantGate:
    """Nothing but the workers."""
    return TenantGate(QueuedPool(rig.workers))


@final
class _AllAlike:
    """Takes the classes out: everything is of the default class."""

    __slots__ = ()

    def admit(self, request: Request, now_us: int) -> NothingHeld:
        request.criticality = DEFAULT_CRITICALITY
        return NOTHING_HELD


candidate: Final = candidate_maker(play)
