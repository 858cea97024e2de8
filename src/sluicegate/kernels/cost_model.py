"""Cost model: what a unit of work costs in request units (RU), before and after it is done.

Source: Airbnb's Mussel ("From Static Rate Limiting to Adaptive Traffic Management in Airbnb's
Key-Value Store", Gaonkar, Getz and Cho, 2025), whose two formulas are

    RU_read  = 1 + w_r * bytes        + w_l * latency_ms
    RU_write = 6 + w_b * bytes / 4096 + w_l * latency_ms

with weights from load tests. Its text counts rows among what costs, its formulas do not; here a
weight of rows, w_rows, stands beside both (0 if not said). Count the rows that were scanned, not
those that were returned: a scan that finds one row has read them all.

**Before** the work is done only its shape is known, and the same formula charges for that: the rows
are the number of keys; the bytes are those
of the request, or what so many rows usually have; the latency is the past p95 of its class of
queries (the caller keeps one, see `windowed_quantile.py`). That leans upwards, as a charge before
the fact should. **After** it, `correction_mru` says what to debit or to give back, at most
`correction_max` times either way, so that one outlier cannot empty a caller's bucket. Or nothing is
settled, as in Mussel, and the model alone learns.

**Learning.** `CostModel.learn` compares what was predicted with what was seen, and moves each
weight in its logarithm, in proportion to its part in the prediction:

    error   = actual / predicted - 1, with actual / predicted held within correction_max
    share_i = weight_i * amount_i / predicted
    log weight_i += rate * error * share_i / sum(share^2)

which moves the prediction by `rate` of the error whatever its make-up. A weight cannot reach 0 or
change its sign, one step is bounded since error and share are, and each stays within `span_max` of
where it started: it cannot diverge, whatever is fed. A weight that starts at 0 stays 0.

Why the relative error and not log(actual / predicted): the latter settles at the geometric mean of
the noise and charges too little for ever, 7 % here. Error against what the noise alone leaves
(WAPE over its floor), and what was charged over what was due, after one true weight has grown
three-fold and 2,000 requests have passed; noise lognormal, sigma 0.41; mean of ten seeds:

                                request        row          byte      millisecond
    weights as they were      1.16  0.80   1.39  0.66   1.60  0.54   1.12  0.76
    one ratio for all, 0.02   1.90  1.44   1.26  0.90   1.37  0.72   1.20  1.13
    log error, rate 0.02      0.98  0.93   0.98  0.93   0.99  0.90   0.98  0.93
    rate 0.005                1.01  1.02   1.03  1.04   1.06  0.89   1.02  1.02
    rate 0.02, the default    1.00  1.01   1.01  1.01   1.00  0.99   1.00  1.01
    rate 0.1                  1.04  1.02   1.04  1.03   1.06  1.01   1.04  1.02

The tests hold the first and the default row. With `margin_quantile` (0.7, say) a prediction is also
multiplied by a margin that is moved up by q and down by 1 - q until that part of requests costs no
more than charged: less to settle later, at the price of charging more at first.

**The unit is the milli-RU**, an integer, rounded up. Buckets count integers, and whole RU would
charge a cheap read of 1.02 RU as 2; a thousandth is 0.1 % of the cheapest request, and a float's
last bits (1.3 RU is 1300.0000000000002 thousandths) are not rounded up to one more.

Cost: measured here, ns on one core: `cost_mru` and `predict_mru` 440 interpreted, 55 compiled;
`learn` 890 and 83; `correction_mru` 240 and 53.
`CostRatio.learn` 560 and 64.
Bounds: weights to `WEIGHT_RU_MAX`, rows, bytes and costs to 2^53, a millisecond as small as floats
go; nothing negative or non-finite. A model is a class of queries' own: nine floats.

**A caller of its own.** `CostRatio` is how many times what the model expects the work of one caller
costs, for callers whose shapes are wrong. It moves by the same error (by its logarithm it would aim
at another mean, and the two would drift apart for ever), first by 1/2 of it, then 1/3, and so on
down to `rate`. A constant pull takes it back to 1 while the error is below `RATIO_PULL`, so what
all have in common ends up in the weights; who is far off is charged so much too little. What it
leaves for the weights is at most a factor of e off while it is new. It is one number: a shape that
is wrong in one part only is right on average.

What to mind. Latency as a cost feeds back: the slower the dearer, the less admitted. Feed it the
time in service, without the queue. Do not learn from cache hits, refusals or failures.
"""

from __future__ import annotations

from math import exp
from typing import Final, final

MILLI: Final = 1000
READ_BASE_RU: Final = 1.0
WRITE_BASE_RU: Final = 6.0
PAGE_BYTES: Final = 4096
BASE_RU_MIN: Final = 1e-6
WEIGHT_RU_MAX: Final = 1e6
GROWTH_LOG_MAX: Final = 100.0  # of a weight in one lesson
AMOUNT_MAX: Final = 1 << 53
COST_MRU_MAX: Final = 1 << 53
LATENCY_MS_MAX: Final = 2.0**53
CORRECTION_MAX: Final = 1000
SPAN_MAX: Final = 1e6
RATIO_YOUTH: Final = 16  # lessons
RATIO_PULL: Final = 0.03
RATIO_LOG_MAX: Final = 6.9077552789821368  # a thousand times, or a thousandth
E: Final = 2.718281828459045


def milli_ru(ru: float) -> int:
    """A cost in thousandths of an RU, rounded up, and at most `COST_MRU_MAX`."""
    if not ru >= 0.0:
        raise ValueError(f"a cost must be 0 RU or more, not {ru}")
    milli = ru * MILLI - 1e-6  # 1.3 RU are 1300 mRU, though as floats they are a hair more
    if milli >= COST_MRU_MAX:
        return COST_MRU_MAX
    whole = int(milli)
    return whole + 1 if milli > whole else whole


def correction_mru(predicted_mru: int, actual_mru: int, correction_max: int = 10) -> int:
    """What to debit, or below 0 to give back, now that the true cost is known.

    The request ends up paying its true cost, but no more than `correction_max` times what was
    predicted, and no less than that part of it: one outlier cannot empty a caller's bucket.
    """
    if not 0 <= predicted_mru <= AMOUNT_MAX:
        raise ValueError(_wrong_amount("predicted_mru", predicted_mru))
    if not 0 <= actual_mru <= AMOUNT_MAX:
        raise ValueError(_wrong_amount("actual_mru", actual_mru))
    _check_correction(correction_max)
    if actual_mru > predicted_mru:
        highest = predicted_mru * correction_max
        if actual_mru > highest:
            return highest - predicted_mru
    else:
        lowest = -(-predicted_mru // correction_max)
        if actual_mru < lowest:
            return lowest - predicted_mru
    return actual_mru - predicted_mru


@final
class Weights:
    """What one request, row, byte and millisecond cost, in RU."""

    __slots__ = ("base_ru", "byte_ru", "ms_ru", "row_ru")

    def __init__(self, base_ru: float, row_ru: float, byte_ru: float, ms_ru: float) -> None:
        _check_weight("base_ru", base_ru, BASE_RU_MIN)
        _check_weight("row_ru", row_ru, 0.0)
        _check_weight("byte_ru", byte_ru, 0.0)
        _check_weight("ms_ru", ms_ru, 0.0)
        self.base_ru = base_ru
        self.row_ru = row_ru
        self.byte_ru = byte_ru
        self.ms_ru = ms_ru

    def cost_mru(self, rows: int, size_bytes: int, latency_ms: float) -> int:
        """What work that took this much has cost."""
        if not _is_shape(rows, size_bytes, latency_ms):
            raise ValueError(_wrong_shape(rows, size_bytes, latency_ms))
        return milli_ru(
            self.base_ru + self.row_ru * rows + self.byte_ru * size_bytes + self.ms_ru * latency_ms
        )

    def __repr__(self) -> str:
        return (
            f"Weights(base_ru={self.base_ru}, row_ru={self.row_ru}, "
            f"byte_ru={self.byte_ru}, ms_ru={self.ms_ru})"
        )


def read_weights(w_r: float, w_l: float, w_rows: float = 0.0) -> Weights:
    """1 + w_r * bytes + w_l * latency_ms, and w_rows * rows beside them."""
    return Weights(READ_BASE_RU, w_rows, w_r, w_l)


def write_weights(w_b: float, w_l: float, w_rows: float = 0.0) -> Weights:
    """6 + w_b * bytes / 4096 + w_l * latency_ms, and w_rows * rows beside them."""
    return Weights(WRITE_BASE_RU, w_rows, w_b / PAGE_BYTES, w_l)


@final
class CostModel:
    """Predicts the cost of one class of queries, and learns its weights from what was observed."""

    __slots__ = (
        "_base_ru",
        "_byte_ru",
        "_correction_max",
        "_highest",
        "_lowest",
        "_margin",
        "_margin_fall",
        "_margin_quantile",
        "_margin_rise",
        "_ms_ru",
        "_rate",
        "_row_ru",
    )

    def __init__(
        self,
        weights: Weights,
        *,
        rate: float = 0.02,
        correction_max: int = 10,
        span_max: float = 1000.0,
        margin_quantile: float | None = None,
    ) -> None:
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"rate must be from 0 to 1, not {rate}")
        _check_correction(correction_max)
        if not 1.0 <= span_max <= SPAN_MAX:
            raise ValueError(f"span_max must be from 1 to 10^6, not {span_max}")
        if margin_quantile is not None and not 0.0 < margin_quantile < 1.0:
            raise ValueError(f"margin_quantile must be above 0 and below 1, not {margin_quantile}")
        self._lowest = _scale_weights(weights, 1.0 / span_max)
        self._highest = _scale_weights(weights, span_max)
        self._base_ru = weights.base_ru
        self._row_ru = weights.row_ru
        self._byte_ru = weights.byte_ru
        self._ms_ru = weights.ms_ru
        self._rate = rate
        self._correction_max = float(correction_max)
        quantile = 0.0 if margin_quantile is None else margin_quantile
        self._margin_quantile = quantile
        self._margin_rise = exp(rate * quantile)
        self._margin_fall = exp(rate * (quantile - 1.0))
        self._margin = 1.0

    def predict_mru(self, rows: int, size_bytes: int, latency_ms: float) -> int:
        """What to charge for work of this shape, `latency_ms` being the past p95 of its class."""
        if not _is_shape(rows, size_bytes, latency_ms):
            raise ValueError(_wrong_shape(rows, size_bytes, latency_ms))
        return milli_ru(
            self._margin
            * (
                self._base_ru
                + self._row_ru * rows
                + self._byte_ru * size_bytes
                + self._ms_ru * latency_ms
            )
        )

    def expect_mru(self, rows: int, size_bytes: int, latency_ms: float) -> int:
        """The same without the margin: what such work costs on average."""
        if not _is_shape(rows, size_bytes, latency_ms):
            raise ValueError(_wrong_shape(rows, size_bytes, latency_ms))
        return milli_ru(
            self._base_ru
            + self._row_ru * rows
            + self._byte_ru * size_bytes
            + self._ms_ru * latency_ms
        )

    def learn(
        self,
        rows: int,
        size_bytes: int,
        latency_ms: float,
        actual_mru: int,
        ratio: CostRatio | None = None,
    ) -> None:
        """Take in what work of this shape, as it was predicted, has cost in truth.

        What is the caller's own goes into its `ratio` first, and the weights learn the rest.
        """
        if not _is_shape(rows, size_bytes, latency_ms):
            raise ValueError(_wrong_shape(rows, size_bytes, latency_ms))
        if not 0 <= actual_mru <= AMOUNT_MAX:
            raise ValueError(_wrong_amount("actual_mru", actual_mru))
        base = self._base_ru
        row = self._row_ru * rows
        byte = self._byte_ru * size_bytes
        ms = self._ms_ru * latency_ms
        ru = base + row + byte + ms
        if ratio is not None:
            actual_mru = ratio.learn(milli_ru(ru), actual_mru)
        times = actual_mru / (MILLI * ru)
        if self._margin_quantile > 0.0:
            self._move_margin(times)
        if times > self._correction_max:
            times = self._correction_max
        elif times * self._correction_max < 1.0:
            times = 1.0 / self._correction_max
        # Shares of the prediction, over the sum of their squares: together the four steps move the
        # prediction by `rate` of the error.
        step = self._rate * (times - 1.0) * ru / (base * base + row * row + byte * byte + ms * ms)
        low, high = self._lowest, self._highest
        self._base_ru = _moved(self._base_ru, step * base, low.base_ru, high.base_ru)
        self._row_ru = _moved(self._row_ru, step * row, low.row_ru, high.row_ru)
        self._byte_ru = _moved(self._byte_ru, step * byte, low.byte_ru, high.byte_ru)
        self._ms_ru = _moved(self._ms_ru, step * ms, low.ms_ru, high.ms_ru)

    def weights(self) -> Weights:
        """The weights as they are now."""
        return Weights(self._base_ru, self._row_ru, self._byte_ru, self._ms_ru)

    def restore(self, weights: Weights, margin: float) -> None:
        """Begin with what was learned before, as far as it may be from where this one started."""
        low, high = self._lowest, self._highest
        self._base_ru = _within(weights.base_ru, low.base_ru, high.base_ru)
        self._row_ru = _within(weights.row_ru, low.row_ru, high.row_ru)
        self._byte_ru = _within(weights.byte_ru, low.byte_ru, high.byte_ru)
        self._ms_ru = _within(weights.ms_ru, low.ms_ru, high.ms_ru)
        if self._margin_quantile > 0.0:
            self._margin = _within(margin, 1.0 / self._correction_max, self._correction_max)

    def margin(self) -> float:
        """What a prediction is multiplied by before it is charged; 1 without a margin quantile."""
        return self._margin

    def _move_margin(self, times: float) -> None:
        """Up if this request cost more than charged, down if not; in balance at the quantile."""
        factor = self._margin_rise if times > self._margin else self._margin_fall
        margin = self._margin * factor
        self._margin = _within(margin, 1.0 / self._correction_max, self._correction_max)


@final
class CostRatio:
    """How many times what is usual the work of one caller costs; 1 to begin with."""

    __slots__ = ("_correction_max", "_lessons", "_log", "_rate", "times")

    def __init__(self, rate: float, correction_max: int = 10) -> None:
        if not 0.0 < rate <= 1.0:
            raise ValueError(f"rate must be above 0 and at most 1, not {rate}")
        _check_correction(correction_max)
        self._rate = rate
        self._correction_max = float(correction_max)
        self._lessons = 0
        self._log = 0.0
        self.times = 1.0

    def scale(self, mru: int) -> int:
        """What is usual, for this caller; rounded up, and at most `COST_MRU_MAX`."""
        return milli_ru(mru * self.times / MILLI)

    def learn(self, usual_mru: int, actual_mru: int) -> int:
        """Take in what work cost that usually costs so much; returns what is left to explain."""
        if not 0 <= usual_mru <= AMOUNT_MAX:
            raise ValueError(_wrong_amount("usual_mru", usual_mru))
        if not 0 <= actual_mru <= AMOUNT_MAX:
            raise ValueError(_wrong_amount("actual_mru", actual_mru))
        usual = usual_mru if usual_mru > 0 else 1
        times = actual_mru / (usual * self.times)
        if times > self._correction_max:
            times = self._correction_max
        elif times * self._correction_max < 1.0:
            times = 1.0 / self._correction_max
        young = self._lessons < RATIO_YOUTH
        rate = self._rate
        if young:
            begun = 1.0 / (self._lessons + 2)
            rate = begun if begun > rate else rate
        step = rate * (times - 1.0)
        if step < 1.0:
            self._lessons += 1
        else:
            step = 1.0  # still far away, and as young as before
        log = self._log + step
        pull = self._rate * RATIO_PULL
        log = log - pull if log > pull else log + pull if log < -pull else 0.0
        self._log = _within(log, -RATIO_LOG_MAX, RATIO_LOG_MAX)
        self.times = exp(self._log)
        left = actual_mru / self.times
        if young:
            left = _within(left, usual / E, usual * E)
        return int(left) if left < AMOUNT_MAX else AMOUNT_MAX


def _moved(weight: float, exponent: float, lowest: float, highest: float) -> float:
    """A weight after a lesson, within its bounds, as it was before."""
    if exponent == 0.0:
        return weight
    # Far beyond every bound of a weight, and still a float.
    grown = weight * exp(exponent if exponent < GROWTH_LOG_MAX else GROWTH_LOG_MAX)
    if grown > highest:
        return highest
    return grown if grown > lowest else lowest


def _scale_weights(weights: Weights, factor: float) -> Weights:
    """The weights times a factor, as far as weights may go."""
    return Weights(
        _within(weights.base_ru * factor, BASE_RU_MIN, WEIGHT_RU_MAX),
        min(weights.row_ru * factor, WEIGHT_RU_MAX),
        min(weights.byte_ru * factor, WEIGHT_RU_MAX),
        min(weights.ms_ru * factor, WEIGHT_RU_MAX),
    )


def _within(value: float, lowest: float, highest: float) -> float:
    if value > highest:
        return highest
    return value if value > lowest else lowest


def _is_shape(rows: int, size_bytes: int, latency_ms: float) -> bool:
    return (
        0 <= rows <= AMOUNT_MAX
        and 0 <= size_bytes <= AMOUNT_MAX
        and 0.0 <= latency_ms <= LATENCY_MS_MAX
    )


def _wrong_shape(rows: int, size_bytes: int, latency_ms: float) -> str:
    return (
        f"rows, size_bytes and latency_ms must be from 0 to 2^53, "
        f"not {rows}, {size_bytes} and {latency_ms}"
    )


def _wrong_amount(name: str, amount: int) -> str:
    return f"{name} must be from 0 to 2^53, not {amount}"


def _check_weight(name: str, weight: float, lowest: float) -> None:
    if not lowest <= weight <= WEIGHT_RU_MAX:
        raise ValueError(f"{name} must be from {lowest} to {WEIGHT_RU_MAX}, not {weight}")


def _check_correction(correction_max: int) -> None:
    if not 1 <= correction_max <= CORRECTION_MAX:
        raise ValueError(f"correction_max must be from 1 to {CORRECTION_MAX}, not {correction_max}")
