"""Request units: charge a request its predicted cost, and settle to its real cost.

Judges one request by its predicted cost and by what its caller has left. Source: resource-aware
rate control in Airbnb's Mussel (Gaonkar, Getz and Cho, 2025); the numbers are
`kernels/cost_model.py` and `kernels/token_bucket.py`. The unit of account is the milli-RU.

    predict    from the claimed rows and bytes, and what such requests were (`WorkEstimates`)
    charge     prediction * price, from the caller's budget; rejected: QUOTA_SPENT
    settle     to what the request did cost, by the table below
    learn      rows, bytes and time of a success enter the estimate

    ended as                       pays
    SUCCESS, measured              its cost, by rows that were looked at
    SUCCESS, not measured          the prediction
    from a cache, or coalesced     `cached_mru`: hot keys are not free
    IGNORE (cancelled)             the base cost; what it read, if known
    DROPPED (timed out)            the prediction, or what it read
    unwound                        nothing: a later stage rejected it

Time is the engine's, without our queue and without the lateness of our event loop, and it is
charged as it usually is: a caller pays for no stall and no slow shard.

**Debt.** A cost beyond the charge is taken from the budget afterwards. An amount beyond the
budget's bound of debt is owed, and is taken as soon as there is room; until then the caller is
rejected. A refund goes back at once. So the sum of charges follows the sum of costs, in whatever
order small and huge requests arrive.

**Work-conserving.** `displaces(request, now_us)` is true while requests of a lower class are
admitted on the request's resource, which is contended. A request whose budget is spent is then
admitted with `over_quota` set, and charged within the bound of the debt; the queue puts it behind
the requests of its class that are within their quotas. Without contention a quota is strict.

A request that costs more than a whole budget is admitted when the budget is full, and leaves a
debt of up to `debt_ru`; beyond that it is COST_ABOVE_LIMIT. Only the claim of a request can rule it
out: an estimate or a price may delay it. `chunks` cuts a scan into requests that enter one by one.

Cost: a look-up, a bucket's step and a permit; a settlement and a lesson at the end. Bounds:
`callers_max`, `estimates_max`, `chunks_max`, named operations to `OPERATIONS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import BasePolicy
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import NO_ATTRIBUTES, Measured, Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.cost_model import (
    AMOUNT_MAX,
    MILLI,
    YOUTH,
    CostEstimate,
    Weights,
    WorkEstimates,
    WorkKind,
    read_weights,
)
from sluicegate.kernels.token_bucket import PRICE_ONE_MILLI
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.policies.quota.budgets import Budget, Pricing, TokenBudgets
from sluicegate.policies.quota.work_shape import WorkShape, cut_chunks, read_shape, rows_each
from sluicegate.policies.settings import check_ranges, within

OPERATIONS_MAX: Final = 1_000
CALLERS_MAX: Final = 1 << 24
RU_MAX: Final = 1 << 40
NO_OPERATIONS: Final[Mapping[str, Weights]] = {}
# One row costs as much again as the request, a KiB a quarter of that, a millisecond a tenth.
_READ: Final = read_weights(0.25 / 1024, 0.1, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUnitsSettings:
    """Weights of operations, and the budget of each caller."""

    name: str = "request_units"
    weights: Weights = field(default_factory=lambda: _READ)
    operations: Mapping[str, Weights] = field(default_factory=lambda: NO_OPERATIONS)
    rate_ru: int = ranged(1_000, 1, RU_MAX)  # a second, for each caller
    burst_ru: int = ranged(1_000, 1, RU_MAX)
    debt_ru: int = ranged(1_000, 0, RU_MAX)
    callers_max: int = ranged(10_000, 1, CALLERS_MAX)
    settle: bool = True
    estimates_max: int = ranged(10_000, 0, CALLERS_MAX)  # 0: only the claim of a request counts
    cached_mru: int = ranged(100, 0, AMOUNT_MAX)
    latency_ms: float = ranged(1.0, 0.0, 1e9)  # of work that was never measured
    chunks_max: int = ranged(10_000, 1, 1 << 20)

    def __post_init__(self) -> None:
        check_ranges("request_units", self)
        within("request_units.operations", len(self.operations), 0, OPERATIONS_MAX)


class RequestUnitsStats(NamedTuple):
    """Counts since the start, in requests and in milli-RU."""

    admitted: int
    refused: int
    over_quota: int  # of those admitted
    under_way: int
    charged_mru: int  # before the fact
    debited_mru: int  # more, after it
    refunded_mru: int
    cached: int
    learned: int
    learned_predicted_mru: int  # of the requests behind `learned`: over the next, its bias
    learned_actual_mru: int


@final
class RequestUnitsPermit(BasePermit):
    """Work that has been charged for."""

    __slots__ = (
        "_charged_mru",
        "_estimate",
        "_kind",
        "_open",
        "_price_milli",
        "_request",
        "_rows",
        "_size_bytes",
        "_units",
        "_weights",
        "predicted_mru",
    )

    def __init__(
        self,
        units: RequestUnits,
        request: Request,
        weights: Weights,
        kind: WorkKind,
        estimate: CostEstimate | None,
        rows: int,
        size_bytes: int,
        predicted_mru: int,
        price_milli: int,
        charged_mru: int,
    ) -> None:
        self._units = units
        self._request = request
        self._weights = weights
        self._kind = kind
        self._estimate = estimate  # by which it was predicted
        self._rows = rows  # as claimed
        self._size_bytes = size_bytes
        self.predicted_mru = predicted_mru
        self._price_milli = price_milli
        self._charged_mru = charged_mru
        self._open = True

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Settle, and learn."""
        if not self._open:
            return False
        self._open = False
        units, request = self._units, self._request
        due_mru = 0
        if spent:
            cost_mru = self._cost_mru(outcome, now_us)
            due_mru = self._charged_mru
            if units.settings.settle:
                request.cost_mru = cost_mru
                due_mru = cost_mru
                if self._price_milli != PRICE_ONE_MILLI:
                    due_mru = _priced(cost_mru, self._price_milli)
        units.end(request, due_mru - self._charged_mru, now_us)
        return True

    def _cost_mru(self, outcome: Outcome, now_us: int) -> int:
        """What it is held to have cost, by the table above."""
        units, weights = self._units, self._weights
        measured = self._request.measured
        if measured is not None and measured.from_cache:
            units.cached += 1
            return units.settings.cached_mru
        is_measured = measured is not None and (measured.rows > 0 or measured.size_bytes > 0)
        base_mru = weights.cost_mru(0, 0, 0.0) if outcome is Outcome.IGNORE else 0
        if measured is None or not (is_measured or outcome is Outcome.SUCCESS):
            return base_mru if 0 < base_mru < self.predicted_mru else self.predicted_mru
        estimate = None
        if outcome is Outcome.SUCCESS:
            estimate = units.learn(
                self._kind, self._rows, self._size_bytes, measured, is_measured, now_us
            )
        if estimate is not None and measured.service_us > 0:
            charged_us = estimate.time(measured.service_us, now_us)
        else:
            charged_us = self._charged_us(measured.service_us)
        rows, size_bytes = measured.rows, measured.size_bytes
        if not is_measured:  # only the time was
            rows, size_bytes = self._rows, self._size_bytes
        cost_mru = weights.cost_mru(
            rows if rows > 0 else 0, size_bytes if size_bytes > 0 else 0, charged_us / 1_000.0
        )
        if outcome is Outcome.SUCCESS:
            units.learned_predicted_mru += self.predicted_mru
            units.learned_actual_mru += cost_mru
        return cost_mru if cost_mru > base_mru else base_mru

    def _charged_us(self, service_us: int) -> float:
        estimate = self._estimate
        if service_us <= 0:
            return self._units.usual_us(estimate)
        return float(service_us) if estimate is None else estimate.charged_us(service_us)


@final
class RequestUnits(BasePolicy):
    """Predicts, charges, settles, learns."""

    __slots__ = (
        "_admitted",
        "_budget",
        "_charged_mru",
        "_debited_mru",
        "_named",
        "_over_quota",
        "_owed_mru",
        "_penalties",
        "_pricing",
        "_refunded_mru",
        "_refused",
        "_shape_of",
        "_under_way",
        "cached",
        "displaces",
        "estimates",
        "learned",
        "learned_actual_mru",
        "learned_predicted_mru",
        "settings",
    )

    def __init__(
        self,
        settings: RequestUnitsSettings,
        *,
        budget: Budget | None = None,
        pricing: Pricing | None = None,
        shape_of: Callable[[Request], WorkShape] | None = None,
        displaces: Callable[[Request, int], bool] | None = None,
    ) -> None:
        self.settings = settings
        if budget is None:
            budget = TokenBudgets(
                settings.rate_ru,
                settings.burst_ru,
                settings.debt_ru,
                callers_max=settings.callers_max,
            )
        self._budget: Budget = budget
        self._pricing = pricing
        self._penalties: Pricing | None = None
        self._shape_of = shape_of
        self.displaces = displaces
        self._named = dict(settings.operations)
        self.estimates = WorkEstimates(settings.estimates_max) if settings.estimates_max else None
        self._owed_mru: dict[str, int] = {}  # what budgets did not take, by caller
        self._admitted = self._refused = self._over_quota = self._under_way = 0
        self._charged_mru = self._debited_mru = self._refunded_mru = 0
        self.cached = self.learned = 0
        self.learned_predicted_mru = self.learned_actual_mru = 0

    def admit(self, request: Request, now_us: int) -> RequestUnitsPermit | Decision:
        """Charge the prediction, and write it to `request.cost_mru`."""
        weights = self._named.get(request.operation)
        if weights is None:
            weights = self.settings.weights
        rows, size_bytes = 1, 0
        if self._shape_of is not None or request.attributes is not NO_ATTRIBUTES:
            shape = self._shape(request)
            rows, size_bytes = shape.rows, shape.size_bytes
        caller = request.caller
        kind = (request.table or request.shard, request.operation, caller)
        estimate = None if self.estimates is None else self.estimates.find(kind)
        if estimate is not None:
            predicted_mru = estimate.predict_mru(weights, rows, size_bytes)
        else:
            predicted_mru = weights.cost_mru(rows, size_bytes, self.settings.latency_ms)
        request.cost_ru = -(-predicted_mru // MILLI)
        request.cost_mru = predicted_mru
        request.over_quota = False
        price_milli = PRICE_ONE_MILLI
        if self._pricing is not None or self._penalties is not None:
            price_milli = self._price_milli(request, now_us)
        request.price_milli = price_milli
        charged_mru = predicted_mru
        if price_milli != PRICE_ONE_MILLI:
            charged_mru = _priced(predicted_mru, price_milli)
        if self._owed_mru:
            self._collect(caller, now_us)
        verdict = self._budget.charge(caller, charged_mru, now_us)
        if not verdict.allowed:
            if verdict.retry_after_us == NEVER:
                payable_mru = self._budget.payable_mru(caller, now_us)
                if weights.cost_mru(rows, size_bytes, 0.0) <= payable_mru < charged_mru:
                    charged_mru = payable_mru
                    predicted_mru = payable_mru * PRICE_ONE_MILLI // price_milli
                    request.cost_mru = predicted_mru
                    verdict = self._budget.charge(caller, charged_mru, now_us)
            if not verdict.allowed:
                if verdict.retry_after_us == NEVER or not self._displaces(request, now_us):
                    return self._refuse(verdict)
                request.over_quota = True
                self._over_quota += 1
                self._budget.settle(caller, charged_mru, now_us)
        self._admitted += 1
        self._under_way += 1
        self._charged_mru += charged_mru
        return RequestUnitsPermit(
            self,
            request,
            weights,
            kind,
            estimate,
            rows,
            size_bytes,
            predicted_mru,
            price_milli,
            charged_mru,
        )

    def penalize(self, penalties: Pricing | None) -> None:
        """Multiply the price of a request by what these return for it; None: by nothing."""
        self._penalties = penalties

    def charge_cached(self, caller: str, now_us: int) -> Decision | None:
        """Charge for an answer from memory: little, not nothing. Return None if it is charged."""
        mru = self.settings.cached_mru
        verdict = self._budget.charge(caller, mru, now_us)
        if verdict.allowed:
            self.cached += 1
            return None
        return self._refuse(verdict)

    def owe_cached(self, caller: str, now_us: int) -> None:
        """The same for a caller whose block of quota is still on its way."""
        self.cached += 1
        self._budget.settle(caller, self.settings.cached_mru, now_us)

    def predict_mru(self, request: Request) -> int:
        """What it would be charged at a price of one; nothing is charged."""
        return self._predict_mru(request, self._shape(request))

    def chunks(self, request: Request, ru: int) -> Iterator[Request]:
        """Requests that make up this one, each predicted at `ru` or little more, in order.

        Each is to be admitted by itself, when the one before has ended, and has arrived then. Its
        attributes give its rows: `rows`, and `first_row` counted from 0. A request of one row is
        one chunk.
        """
        return cut_chunks(request, self._shape(request), self.chunk_rows(request, ru))

    def chunk_rows(self, request: Request, ru: int) -> int:
        """How many rows each chunk of it has."""
        within("ru", ru, 1, RU_MAX)
        shape = self._shape(request)
        whole_mru = self._predict_mru(request, shape)
        fixed_mru = self._predict_mru(request, WorkShape(0, 0))
        return rows_each(shape, whole_mru, fixed_mru, ru * MILLI, self.settings.chunks_max)

    def end(self, request: Request, correction_mru: int, now_us: int) -> None:
        """Settle a request that has ended; called by its permit."""
        self._under_way -= 1
        if correction_mru == 0:
            return
        if correction_mru > 0:
            self._debited_mru += correction_mru
        else:
            self._refunded_mru -= correction_mru
        left_mru = self._budget.settle(request.caller, correction_mru, now_us)
        if left_mru and not request.over_quota:
            self._owe(request.caller, left_mru)

    def learn(
        self,
        kind: WorkKind,
        rows: int,
        size_bytes: int,
        measured: Measured,
        is_measured: bool,
        now_us: int,
    ) -> CostEstimate | None:
        """Record a request that has succeeded; called by its permit."""
        self.learned += 1
        estimates = self.estimates
        if estimates is None:
            return None
        own = estimates.meet(kind, now_us)
        if is_measured:
            own.learn(rows, size_bytes, measured.rows, measured.size_bytes)
            if own.count < YOUTH and kind[2]:
                table = estimates.meet((kind[0], kind[1], ""), now_us)
                table.learn(rows, size_bytes, measured.rows, measured.size_bytes)
                if measured.service_us > 0:
                    table.time(measured.service_us, now_us)
        return own

    def usual_us(self, estimate: CostEstimate | None) -> float:
        """The time of work whose time was not measured."""
        if estimate is None or estimate.timed == 0:
            return self.settings.latency_ms * 1_000
        return estimate.usual_us

    def owed_mru(self) -> dict[str, int]:
        """Return the amounts that callers owe beyond the debt of their budgets."""
        return dict(self._owed_mru)

    def owe(self, owed_mru: Mapping[str, int]) -> None:
        """Add amounts that callers owed at another dispatcher."""
        for caller, mru in owed_mru.items():
            if mru > 0:
                self._owe(caller, mru)

    def operations(self) -> Mapping[str, Weights]:
        """The weights of each named operation."""
        return self._named

    def stats(self) -> RequestUnitsStats:
        """What it looks like now."""
        return RequestUnitsStats(
            self._admitted,
            self._refused,
            self._over_quota,
            self._under_way,
            self._charged_mru,
            self._debited_mru,
            self._refunded_mru,
            self.cached,
            self.learned,
            self.learned_predicted_mru,
            self.learned_actual_mru,
        )

    def _shape(self, request: Request) -> WorkShape:
        return read_shape(request) if self._shape_of is None else self._shape_of(request)

    def _predict_mru(self, request: Request, shape: WorkShape) -> int:
        weights = self._named.get(request.operation, self.settings.weights)
        kind = (request.table or request.shard, request.operation, request.caller)
        estimate = None if self.estimates is None else self.estimates.find(kind)
        if estimate is None:
            return weights.cost_mru(shape.rows, shape.size_bytes, self.settings.latency_ms)
        return estimate.predict_mru(weights, shape.rows, shape.size_bytes)

    def _price_milli(self, request: Request, now_us: int) -> int:
        price_milli = PRICE_ONE_MILLI
        if self._pricing is not None:
            price_milli = self._pricing.price_milli(request, now_us)
        if self._penalties is not None:
            times_milli = self._penalties.price_milli(request, now_us)
            price_milli = price_milli * times_milli // PRICE_ONE_MILLI
        return price_milli

    def _displaces(self, request: Request, now_us: int) -> bool:
        return self.displaces is not None and self.displaces(request, now_us)

    def _collect(self, caller: str, now_us: int) -> None:
        """Take what a caller owes out of its budget, as far as the budget has room for debt."""
        owed_mru = self._owed_mru.pop(caller, 0)
        if owed_mru:
            left_mru = self._budget.settle(caller, owed_mru, now_us)
            if left_mru:
                self._owed_mru[caller] = left_mru

    def _owe(self, caller: str, mru: int) -> None:
        owed = self._owed_mru
        if caller in owed or len(owed) < self.settings.callers_max:
            owed[caller] = owed.get(caller, 0) + mru

    def _refuse(self, verdict: Verdict) -> Decision:
        self._refused += 1
        never = verdict.retry_after_us == NEVER
        return Decision(
            False,
            verdict.remaining // MILLI,
            verdict.retry_after_us,
            verdict.reset_after_us,
            COST_ABOVE_LIMIT if never else QUOTA_SPENT,
            self.settings.name,
        )


def _priced(mru: int, price_milli: int) -> int:
    return -(-mru * price_milli // PRICE_ONE_MILLI)
