"""Request units: charge work for what it will cost, before it is done, and learn from what it did.

Judges one unit by its predicted cost and what its caller has left. Source: resource-aware rate
control in Airbnb's Mussel (Gaonkar, Getz and Cho, 2025); the numbers are `kernels/cost_model.py`
and `kernels/token_bucket.py`. The unit of account is the milli-RU.

    predict      from the shape (rows, bytes) and the past p95 of its operation, with a margin
    charge       prediction * price of its class, from its caller's budget; refused: QUOTA_SPENT
    settle       to what it did, within `correction_max` times the prediction
    learn        the weights of the operation, and the ratio of the caller, move towards what was
                 measured (`operation_cost.py`)

The form of the seed (`settle=False, margin_quantile=None`) never corrects a charge, only the model.
Settling is the default: a caller whose one scan was mispredicted a hundredfold pays for it, and not
everybody for the next hour.

    ended as                       pays                                         teaches
    SUCCESS, measured              what it cost, rows *looked at*               yes
    SUCCESS, not measured          the prediction                               no
    from a cache, or coalesced     `cached_mru`: hot keys are no free ride      no
    IGNORE (cancelled)             the base cost; what it read, if known        no
    DROPPED (timed out)            the prediction, or what it read              no
    unwound                        nothing: later stages refused it             no

**Estimates** (`sketches_max`). Where the bytes of a request are not said they are estimated from
what its table, operation and caller have weighed (`work_estimates.py`), and the weights learn from
what was measured instead of what was estimated. With `carry` what an estimate leaves is paid by the
caller's next one (`estimate_error.py`), so that the sum of charges follows the sum of costs. Time
counts there as far as it was expected: nobody owes for a stall of the backend.

Rows returned would be the wrong number: a scan that finds one row has read them all. Time is that
in the backend; with our queue in it, slow would make dear, and dear slower. A measurement without
rows and bytes counts those of the shape.

What costs more than a whole budget is admitted when the budget is full, and owes the rest, up to
`debt_ru`; beyond that it is COST_ABOVE_LIMIT, and should be asked for in pieces. `chunks` cuts a
scan into requests that each enter anew, so that one of 200 RU waits its turn twenty times instead
of holding a place for all of it.

A `Budget` of another kind (`budgets.py`) may be given: `LeasedBudget` is one, filled each epoch.

Cost: a prediction, a bucket's step and a permit; a settlement and a lesson at the end. Bounds:
`callers_max`, `ratios_max`, `sketches_max`, `chunks_max`, named operations to `OPERATIONS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import BasePolicy
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.cost_model import (
    AMOUNT_MAX,
    MILLI,
    CostRatio,
    Weights,
    correction_mru,
    read_weights,
)
from sluicegate.kernels.token_bucket import PRICE_ONE_MILLI
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.policies.budgets import Budget, Penalties, Pricing, TokenBudgets
from sluicegate.policies.estimate_error import (
    RISK_CHARGES,
    UNSEEN_CHARGES,
    EstimateError,
    EstimateErrors,
)
from sluicegate.policies.operation_cost import (
    SIZE,
    CallerRatios,
    OperationCost,
    WorkShape,
    cut_chunks,
    read_shape,
    rows_each,
)
from sluicegate.policies.settings import check_ranges, within
from sluicegate.policies.work_estimates import YOUTH, WorkEstimates

OPERATIONS_MAX: Final = 1_000
STALLED_TIMES: Final = 4  # the past p95
CALLERS_MAX: Final = 1 << 24
RU_MAX: Final = 1 << 40
NO_OPERATIONS: Final[Mapping[str, Weights]] = {}
# One row costs as much again as the request, a KiB a quarter of that, a millisecond a tenth.
_READ: Final = read_weights(0.25 / 1024, 0.1, 1.0)
_LESSON_MAX: Final = 400.0  # e to the power of it is still a float, with room


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUnitsSettings:
    """What things cost, and what a caller has."""

    name: str = "request_units"
    weights: Weights = field(default_factory=lambda: _READ)
    operations: Mapping[str, Weights] = field(default_factory=lambda: NO_OPERATIONS)
    rate_ru: int = ranged(1_000, 1, RU_MAX)  # a second, for each caller
    burst_ru: int = ranged(1_000, 1, RU_MAX)
    debt_ru: int = ranged(1_000, 0, RU_MAX)
    callers_max: int = ranged(10_000, 1, CALLERS_MAX)
    settle: bool = True
    correction_max: int = ranged(10, 1, 1_000)
    margin_quantile: float | None = 0.7
    learn_rate: float = ranged(0.02, 0.0, 1.0)
    ratios_max: int = ranged(10_000, 0, CALLERS_MAX)  # callers with a ratio; 0: all are alike
    sketches_max: int = ranged(0, 0, CALLERS_MAX)  # 0: what is not said counts as nothing
    carry: bool = False
    cached_mru: int = ranged(100, 0, AMOUNT_MAX)
    latency_ms: float = ranged(1.0, 0.0, 1e9)  # expected of an operation that was never seen
    chunks_max: int = ranged(10_000, 1, 1 << 20)

    def __post_init__(self) -> None:
        check_ranges("request_units", self)
        within("request_units.operations", len(self.operations), 0, OPERATIONS_MAX)
        if self.learn_rate * self.correction_max > _LESSON_MAX:
            raise BadValue(
                "request_units.learn_rate",
                self.learn_rate,
                f"one lesson would overshoot; with correction_max={self.correction_max}, give at "
                f"most {_LESSON_MAX / self.correction_max:g}",
            )
        if self.margin_quantile is not None and not 0.0 < self.margin_quantile < 1.0:
            raise BadValue(
                "request_units.margin_quantile", self.margin_quantile, "give a part within 0 and 1"
            )


class RequestUnitsStats(NamedTuple):
    """Counts since the beginning, in requests and in milli-RU."""

    admitted: int
    refused: int
    under_way: int
    charged_mru: int  # before the fact
    debited_mru: int  # more, after it
    refunded_mru: int
    cached: int
    learned: int
    learned_predicted_mru: int  # of what was learned from: over the next, its bias
    learned_actual_mru: int
    carried_mru: int  # paid by later estimates, less what they gave back


@final
class RequestUnitsPermit(BasePermit):
    """Work that has been charged for."""

    __slots__ = (
        "_beside",
        "_charged_mru",
        "_error",
        "_expected",
        "_instalment_mru",
        "_latency_ms",
        "_open",
        "_operation",
        "_price_milli",
        "_ratio",
        "_request",
        "_risk_mru",
        "_shape",
        "_units",
        "_unseen_mru",
        "predicted_mru",
    )

    def __init__(
        self,
        units: RequestUnits,
        operation: OperationCost,
        request: Request,
        shape: WorkShape,
        latency_ms: float,
        ratio: CostRatio | None,
        predicted_mru: int,
        price_milli: int,
        charged_mru: int,
        error: EstimateError | None,
        instalment_mru: int,
        risk_mru: int,
        unseen_mru: int,
        beside: int,
    ) -> None:
        self._units = units
        self._operation = operation
        self._request = request
        self._shape = shape
        self._latency_ms = latency_ms
        self._ratio = ratio  # None: its caller had none yet
        self._price_milli = price_milli
        self._charged_mru = charged_mru
        self._error = error
        self._instalment_mru = instalment_mru
        self._risk_mru = risk_mru
        self._unseen_mru = unseen_mru
        self._beside = beside  # under way when it was admitted
        self._expected = -1  # what it cost but for time that was not expected; below 0: not known
        self._open = True
        self.predicted_mru = predicted_mru

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Settle, and learn."""
        if not self._open:
            return False
        self._open = False
        units = self._units
        due_mru = self._charged_mru
        error = self._error
        if error is not None:
            error.at_risk_mru -= self._risk_mru
            if self._unseen_mru:
                units.see(self._request.caller, error, self._unseen_mru, now_us)
        if not spent:
            due_mru = 0
            if error is not None:
                error.owed_mru += self._instalment_mru
        else:
            cost_mru = self._cost_mru(outcome, now_us)
            paid_mru = self.predicted_mru
            if units.settings.settle:
                paid_mru = cost_mru
                due_mru = _priced(cost_mru + self._instalment_mru, self._price_milli)
            if error is not None:
                units.carried_mru += self._instalment_mru + error.paid_mru
                self._request.cost_mru += error.paid_mru  # somebody has to show it
                error.paid_mru = 0
                back_mru = 0
                if self._expected >= 0:
                    back_mru = error.end(self._expected - paid_mru, paid_mru)
                if back_mru:
                    self._request.cost_mru -= back_mru
                    due_mru -= _priced(back_mru, self._price_milli)
        units.settle(self._request.caller, due_mru - self._charged_mru, now_us)
        return True

    def _cost_mru(self, outcome: Outcome, now_us: int) -> int:
        """What it is held to have cost, by the table above."""
        units, operation = self._units, self._operation
        measured = self._request.measured
        if measured is not None and measured.from_cache:
            units.cached += 1
            self._expected = units.settings.cached_mru
            return self._expected
        is_measured = measured is not None and (measured.rows > 0 or measured.size_bytes > 0)
        if outcome is Outcome.IGNORE:
            base_mru = operation.weights.cost_mru(0, 0, 0.0)
            if measured is None or not is_measured:
                return base_mru if base_mru < self.predicted_mru else self.predicted_mru
            actual_mru = self._actual_mru(measured)
            self._expected = self._expected_mru(measured, actual_mru)
            cost_mru = self._capped(actual_mru)
            return cost_mru if cost_mru > base_mru else base_mru
        if measured is None or (outcome is Outcome.DROPPED and not is_measured):
            return self.predicted_mru
        actual_mru = self._actual_mru(measured)
        if is_measured and self._error is not None:
            self._expected = self._expected_mru(measured, actual_mru)
        if outcome is Outcome.SUCCESS:
            request, shape = self._request, self._shape
            if is_measured and units.estimates is not None:
                units.learn_weight(request, shape, measured, now_us)
                shape.rows = max(0, measured.rows)
                shape.size_bytes = max(0, measured.size_bytes)
                actual_mru = self._expected_mru(measured, actual_mru)
            ratio = self._ratio
            if ratio is None:
                ratio = units.ratios.meet(operation.name, request.caller)
            if not self._stalled(measured):
                operation.learn(shape, self._latency_ms, actual_mru, ratio)
            place = request.table or request.shard
            operation.time(place, measured.service_us, self._beside, now_us)
            units.learned += 1
            units.learned_predicted_mru += self.predicted_mru
            units.learned_actual_mru += actual_mru
        return self._capped(actual_mru) if units.settings.settle else actual_mru

    def _actual_mru(self, measured: Measured) -> int:
        shape = self._shape
        rows, size_bytes = measured.rows, measured.size_bytes
        if rows <= 0 and size_bytes <= 0:  # Only the time was measured.
            rows, size_bytes = shape.rows, shape.size_bytes
        service_ms = self._latency_ms
        if measured.service_us > 0:
            place = self._request.table or self._request.shard
            service_ms = self._operation.charged_ms(place, measured.service_us)
        rows, size_bytes = rows if rows > 0 else 0, size_bytes if size_bytes > 0 else 0
        return self._operation.weights.cost_mru(rows, size_bytes, service_ms)

    def _expected_mru(self, measured: Measured, actual_mru: int) -> int:
        """The same, but for time that was not expected: nobody owes for a stall."""
        latency_ms, operation = self._latency_ms, self._operation
        if measured.service_us <= latency_ms * 1_000:
            return actual_mru
        rows, size_bytes = max(0, measured.rows), max(0, measured.size_bytes)
        if self._stalled(measured):  # what is usual; the past p95 of so many would be a charge
            return operation.predict_mru(WorkShape(rows, size_bytes), latency_ms, self._ratio)
        return operation.weights.cost_mru(rows, size_bytes, latency_ms)

    def _stalled(self, measured: Measured) -> bool:
        """Whether it was held up, so that its time says nothing of what such work costs."""
        if self._operation.weights.ms_ru == 0.0:
            return False  # time costs nothing, so it is not known what is usual
        return measured.service_us > STALLED_TIMES * self._latency_ms * 1_000

    def _capped(self, actual_mru: int) -> int:
        predicted_mru = self.predicted_mru
        cap = self._units.settings.correction_max
        return predicted_mru + correction_mru(predicted_mru, actual_mru, cap)


@final
class RequestUnits(BasePolicy):
    """Predicts, charges, settles, learns."""

    __slots__ = (
        "_admitted",
        "_budget",
        "_charged_mru",
        "_debited_mru",
        "_named",
        "_other",
        "_penalties",
        "_pricing",
        "_refunded_mru",
        "_refused",
        "_shape_of",
        "_under_way",
        "cached",
        "carried_mru",
        "errors",
        "estimates",
        "learned",
        "learned_actual_mru",
        "learned_predicted_mru",
        "on_seen",
        "ratios",
        "settings",
    )

    def __init__(
        self,
        settings: RequestUnitsSettings,
        *,
        budget: Budget | None = None,
        pricing: Pricing | None = None,
        penalties: Penalties | None = None,
        shape_of: Callable[[Request], WorkShape] | None = None,
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
        self._penalties = penalties
        self._shape_of = shape_of
        self._named = {
            name: _operation(name, weights, settings)
            for name, weights in settings.operations.items()
        }
        self._other = _operation("", settings.weights, settings)
        self.ratios = CallerRatios(
            settings.ratios_max,
            learn_rate=settings.learn_rate,
            correction_max=settings.correction_max,
        )
        self.estimates = WorkEstimates(settings.sketches_max) if settings.sketches_max else None
        self.errors = EstimateErrors(settings.callers_max) if settings.carry else None
        self.on_seen: Callable[[str], None] | None = None  # something unseen of it has ended
        self.carried_mru = 0
        self._admitted = self._refused = self._under_way = 0
        self._charged_mru = self._debited_mru = self._refunded_mru = 0
        self.cached = self.learned = 0
        self.learned_predicted_mru = self.learned_actual_mru = 0

    def admit(self, request: Request, now_us: int) -> RequestUnitsPermit | Decision:
        """Charge the prediction, and write it to `request.cost_ru`."""
        operation = self._operation(request)
        shape = self._shape(request)
        latency_ms = operation.latency_ms(request.table or request.shard)
        ratio = self.ratios.find(operation.name, request.caller)
        predicted_mru = operation.predict_mru(shape, latency_ms, ratio)
        error: EstimateError | None = None
        instalment_mru = risk_mru = unseen_mru = payable_mru = 0
        if self.errors is not None:
            error = self.errors.meet(request.caller)
            risk_mru = self._risk_mru(operation, shape)
            # What is at most an estimate more is payable, or found out below not to be.
            payable_mru = 2 * predicted_mru
            if error.owed_mru > predicted_mru or (risk_mru > 0 and error.at_risk_mru > 0):
                payable_mru = self._budget.payable_mru(request.caller, now_us)
                if error.at_risk_mru + risk_mru > RISK_CHARGES * payable_mru:
                    predicted_mru += risk_mru
                    risk_mru = 0
        request.cost_ru = -(-predicted_mru // MILLI)
        request.cost_mru = predicted_mru
        if error is not None:
            unpaid = self._pay(request.caller, error, payable_mru, now_us)
            if unpaid is not None:
                return self._refuse(unpaid)
            if error.owed_mru:
                instalment_mru = error.instalment_mru(predicted_mru, payable_mru)
        price_milli = PRICE_ONE_MILLI
        if self._pricing is not None:
            price_milli = self._pricing.price_milli(request, now_us)
        if self._penalties is not None:
            times_milli = self._penalties.price_milli(request, now_us)
            price_milli = price_milli * times_milli // PRICE_ONE_MILLI
        request.price_milli = price_milli
        charged_mru = _priced(predicted_mru + instalment_mru, price_milli)
        verdict = self._budget.charge(request.caller, charged_mru, now_us)
        if verdict.retry_after_us == NEVER and error is not None:
            # Only what is said of a request may rule it out. Prices, and what was learned of its
            # kind and of its caller, change: they may delay it.
            payable_mru = self._budget.payable_mru(request.caller, now_us)
            said_mru = operation.predict_mru(WorkShape(shape.rows, shape.said_bytes), 0.0, None)
            if said_mru <= payable_mru < charged_mru:
                charged_mru = payable_mru
                predicted_mru = payable_mru * PRICE_ONE_MILLI // price_milli
                instalment_mru = 0
                verdict = self._pay(
                    request.caller, error, payable_mru, now_us
                ) or self._budget.charge(request.caller, charged_mru, now_us)
        if not verdict.allowed:
            return self._refuse(verdict)
        if error is not None:
            request.cost_mru = predicted_mru + instalment_mru
            error.owed_mru -= instalment_mru
            error.at_risk_mru += risk_mru
            unseen_mru = self._hold(operation, shape, request, error, now_us)
        self._admitted += 1
        self._under_way += 1
        self._charged_mru += charged_mru
        return RequestUnitsPermit(
            self,
            operation,
            request,
            shape,
            latency_ms,
            ratio,
            predicted_mru,
            price_milli,
            charged_mru,
            error,
            instalment_mru,
            risk_mru,
            unseen_mru,
            self._under_way - 1,
        )

    def see(self, caller: str, error: EstimateError, mru: int, now_us: int) -> None:
        """What so much was unseen of has ended; only a permit says so."""
        error.unseen_mru -= mru
        errors = self.errors
        if errors is not None and caller in errors.held and not self._hides(caller, error, now_us):
            errors.held.discard(caller)
        if self.on_seen is not None:
            self.on_seen(caller)

    def _hold(
        self,
        operation: OperationCost,
        shape: WorkShape,
        request: Request,
        error: EstimateError,
        now_us: int,
    ) -> int:
        """Hold its caller if what is unseen with it is too much; return what is unseen of it.

        What at most doubles its charge counts as nothing, and one alone is never too much.
        """
        mru = int(shape.unseen_bytes * operation.weights.byte_ru * MILLI)
        if mru <= request.cost_mru:
            return 0
        others_mru = error.unseen_mru
        error.unseen_mru += mru
        errors, caller = self.errors, request.caller
        if others_mru and errors is not None and self._hides(caller, error, now_us):
            errors.held.add(caller)
        return mru

    def _hides(self, caller: str, error: EstimateError, now_us: int) -> bool:
        """Whether what is unseen could be too much."""
        return error.unseen_mru > UNSEEN_CHARGES * self._budget.payable_mru(caller, now_us)

    def penalize(self, penalties: Penalties | None) -> None:
        """Replace the table of callers that pay more."""
        self._penalties = penalties

    def _pay(
        self, caller: str, error: EstimateError, payable_mru: int, now_us: int
    ) -> Verdict | None:
        """Charge what is owed, if that is more than a charge can be; why not, if it cannot be paid.

        Else whoever asks for nothing but what is dearer than any charge would never pay the rest.
        """
        if error.owed_mru <= payable_mru:
            return None
        verdict = self._budget.charge(caller, payable_mru, now_us)
        if not verdict.allowed:
            return verdict
        error.owed_mru -= payable_mru
        error.paid_mru += payable_mru
        self._charged_mru += payable_mru
        return None

    def charge_cached(self, caller: str, now_us: int) -> Decision | None:
        """Charge for what is answered without the backend: small, not nothing. None is charged."""
        mru = self.settings.cached_mru
        verdict = self._budget.charge(caller, mru, now_us)
        if verdict.allowed:
            self.cached += 1
            return None
        return self._refuse(verdict)

    def owe_cached(self, caller: str, now_us: int) -> None:
        """The same for a caller that has not got it yet."""
        self.cached += 1
        self._budget.settle(caller, self.settings.cached_mru, now_us)

    def predict_mru(self, request: Request) -> int:
        """What it would be charged at a price of one; nothing is charged."""
        operation = self._operation(request)
        ratio = self.ratios.find(operation.name, request.caller)
        latency_ms = operation.latency_ms(request.table or request.shard)
        return operation.predict_mru(self._shape(request), latency_ms, ratio)

    def chunks(self, request: Request, ru: int) -> Iterator[Request]:
        """Requests that make up this one, each predicted at `ru` or little more, in order.

        Each is to be admitted by itself, when the one before has ended, and has arrived then. Its
        attributes say which rows it is for: `rows`, and `first_row` counted from 0. A request of
        one row is one chunk.
        """
        return cut_chunks(request, self._shape(request), self.chunk_rows(request, ru))

    def chunk_rows(self, request: Request, ru: int) -> int:
        """How many rows each chunk of it has."""
        within("ru", ru, 1, RU_MAX)
        operation = self._operation(request)
        shape = self._shape(request)
        ratio = self.ratios.find(operation.name, request.caller)
        latency_ms = operation.latency_ms(request.table or request.shard)
        whole_mru = operation.predict_mru(shape, latency_ms, ratio)
        fixed_mru = operation.predict_mru(WorkShape(0, 0), latency_ms, ratio)
        return rows_each(shape, whole_mru, fixed_mru, ru * MILLI, self.settings.chunks_max)

    def settle(self, caller: str, correction_mru: int, now_us: int) -> None:
        """One has ended; only a permit says so."""
        self._under_way -= 1
        if correction_mru > 0:
            self._debited_mru += correction_mru
        elif correction_mru < 0:
            self._refunded_mru -= correction_mru
        else:
            return
        self._budget.settle(caller, correction_mru, now_us)

    def expect_mru(self, request: Request) -> int:
        """What it is expected to cost on average: the prediction without the margin."""
        operation = self._operation(request)
        shape = self._shape(request)
        mru = operation.model.expect_mru(
            shape.rows, shape.size_bytes, operation.latency_ms(request.table or request.shard)
        )
        ratio = self.ratios.find(operation.name, request.caller)
        return mru if ratio is None else ratio.scale(mru)

    def weights(self, operation: str) -> Weights:
        """What has been learned about one operation."""
        return self._named.get(operation, self._other).model.weights()

    def operations(self) -> Mapping[str, OperationCost]:
        """What has been learned about each named one."""
        return self._named

    def stats(self) -> RequestUnitsStats:
        """What it looks like now."""
        return RequestUnitsStats(
            self._admitted,
            self._refused,
            self._under_way,
            self._charged_mru,
            self._debited_mru,
            self._refunded_mru,
            self.cached,
            self.learned,
            self.learned_predicted_mru,
            self.learned_actual_mru,
            self.carried_mru,
        )

    def learn_weight(
        self, request: Request, shape: WorkShape, measured: Measured, now_us: int
    ) -> None:
        """Take in what one has weighed; only a permit says so."""
        estimates = self.estimates
        if estimates is None:
            return
        rows, size_bytes = measured.rows, measured.size_bytes
        table = request.table
        if SIZE in request.attributes:  # of a write, as a rule: what readers may expect
            estimates.learn_table(table, rows, size_bytes, now_us)
            return
        sketch = shape.sketch
        if sketch is None:
            sketch = estimates.meet(table, request.operation, request.caller)
        sketch.learn(rows, size_bytes, now_us)
        if sketch.lessons < YOUTH:
            estimates.learn_table(table, rows, size_bytes, now_us)

    def _shape(self, request: Request) -> WorkShape:
        """What is said, and of its bytes what is estimated if they are not."""
        shape = read_shape(request) if self._shape_of is None else self._shape_of(request)
        estimates = self.estimates
        if estimates is None or SIZE in request.attributes:
            return shape
        sketch = shape.sketch = estimates.find(request.table, request.operation, request.caller)
        if sketch is not None and sketch.lessons == YOUTH:
            shape.size_bytes = sketch.bytes_of(shape.rows)
            shape.heaviest_bytes = sketch.heaviest
            whole = estimates.of_table(request.table)
            if whole is not None and whole.heaviest * shape.rows > sketch.heaviest:
                shape.unseen_bytes = whole.heaviest * shape.rows - sketch.heaviest
            return shape
        whole = estimates.of_table(request.table)
        known = whole if sketch is None else sketch
        if known is not None:
            shape.size_bytes = known.bytes_of(shape.rows)
            shape.heaviest_bytes = known.heaviest
        if whole is not None and whole.heaviest > shape.heaviest_bytes:
            shape.heaviest_bytes = whole.heaviest
        return shape

    def _risk_mru(self, operation: OperationCost, shape: WorkShape) -> int:
        """By how much the heaviest of its kind would cost more."""
        more = shape.heaviest_bytes - shape.size_bytes
        return int(more * operation.weights.byte_ru * MILLI) if more > 0 else 0

    def _operation(self, request: Request) -> OperationCost:
        return self._named.get(request.operation, self._other)

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


def _operation(name: str, weights: Weights, settings: RequestUnitsSettings) -> OperationCost:
    return OperationCost(
        name,
        weights,
        learn_rate=settings.learn_rate,
        correction_max=settings.correction_max,
        margin_quantile=settings.margin_quantile,
        latency_ms=settings.latency_ms,
    )


def _priced(mru: int, price_milli: int) -> int:
    if price_milli == PRICE_ONE_MILLI:
        return mru
    return -(-mru * price_milli // PRICE_ONE_MILLI)
