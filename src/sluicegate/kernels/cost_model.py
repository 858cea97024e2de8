"""Cost model: what a unit of work costs in request units (RU), before and after it is done.

Source: Airbnb's Mussel ("From Static Rate Limiting to Adaptive Traffic Management in Airbnb's
Key-Value Store", Gaonkar, Getz and Cho, 2025), whose two formulas are

    RU_read  = 1 + w_r * bytes        + w_l * latency_ms
    RU_write = 6 + w_b * bytes / 4096 + w_l * latency_ms

with weights from load tests. Its text counts rows among what costs, its formulas do not; here a
weight of rows, w_rows, is added to both (0 if not given). Count the rows that were scanned, not
those that were returned: a scan that finds one row has read them all.

**Before** the work is done only its shape is known. `CostEstimate` is what work of one kind has
turned out to be: running means of the rows and bytes that were claimed of a request, of those that
were found, and of its time. A prediction scales the claim of a request by them.

**Time** is charged as it usually is. `usual_us` is the mean of up to `HISTORY_US`, `recent_us` that
of the last 32 requests:

    took more than 4 times the usual      it was held up: the usual is charged
    recent above 1.5 times the usual      an incident: time is scaled back by recent / usual
    else                                  its own time is charged

While recent / usual is outside [1 / 1.5, 1.5] the usual is frozen, so an incident does not become
what is usual while it lasts. Work that stays quicker for a minute is usual then; work that stays
slower, after ten times as long as the usual was known before, an hour at most. Outliers are clipped
before they enter a mean: amounts at 10 times the estimate, times at 4.

`WorkEstimates` keeps the estimates:

    of a caller     requests of this table, operation and caller
    of a table      requests of this table and operation by callers that are new there: it predicts
                    the first request of the next one, and is its usual time

A caller's first `YOUTH` requests teach both; after that only its own.

**The unit is the milli-RU**, an integer, rounded up. Buckets count integers, and whole RU would
charge a cheap read of 1.02 RU as 2; a thousandth is 0.1% of the cheapest request, and a float's
last bits (1.3 RU is 1300.0000000000002 thousandths) are not rounded up to one more.

Bounds: weights to `WEIGHT_RU_MAX`, rows, bytes and costs to 2^53; nothing negative or non-finite.
An estimate is ten numbers. `estimates_max` of them are kept; of the `LOOKS` oldest, the one with
the fewest requests is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias, final

MILLI: Final = 1000
READ_BASE_RU: Final = 1.0
WRITE_BASE_RU: Final = 6.0
PAGE_BYTES: Final = 4096
BASE_RU_MIN: Final = 1e-6
WEIGHT_RU_MAX: Final = 1e6
AMOUNT_MAX: Final = 1 << 53
COST_MRU_MAX: Final = 1 << 53
LATENCY_MS_MAX: Final = 2.0**53
SECOND_US: Final = 1_000_000
RATE: Final = 1 / 64  # of a lesson, once there have been 64: the noise of a mean is then 6%
RECENT: Final = 1 / 32
KNOWN: Final = 32  # requests from which on stalls do not move the usual time
KNOWN_TIMES: Final = 10
OUTLIER_TIMES: Final = 10.0
HELD_UP_TIMES: Final = 4.0
BAND: Final = 1.5  # beyond the noise of 32 memoryless times (18%), below a quota of 1.5 the need
HISTORY_US: Final = 3_600 * SECOND_US
QUICKER_US: Final = 60 * SECOND_US
SLOWER_US: Final = 3_600 * SECOND_US
RESTORED: Final = 32  # requests that a recorded estimate counts as
_IN_BAND: Final = -1
LOOKS: Final = 4
YOUTH: Final = 64
WorkKind: TypeAlias = tuple[str, str, str]  # table or shard, operation, caller


def milli_ru(ru: float) -> int:
    """A cost in thousandths of an RU, rounded up, and at most `COST_MRU_MAX`."""
    if not ru >= 0.0:
        raise ValueError(f"a cost must be 0 RU or more, not {ru}")
    milli = ru * MILLI - 1e-6  # 1.3 RU are 1300 mRU, though as floats they are a hair more
    if milli >= COST_MRU_MAX:
        return COST_MRU_MAX
    whole = int(milli)
    return whole + 1 if milli > whole else whole


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
        if not (
            0 <= rows <= AMOUNT_MAX
            and 0 <= size_bytes <= AMOUNT_MAX
            and 0.0 <= latency_ms <= LATENCY_MS_MAX
        ):
            raise ValueError(
                f"rows, size_bytes and latency_ms must be from 0 to 2^53, "
                f"not {rows}, {size_bytes} and {latency_ms}"
            )
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


class EstimateRow(NamedTuple):
    """The numbers of an estimate, for records and views."""

    requests: int
    said_rows: float  # a request
    rows: float
    said_bytes: float
    size_bytes: float
    usual_us: float


@final
class CostEstimate:
    """Means of claimed and found amounts of one kind of request, and its usual time."""

    __slots__ = (
        "_at_us",
        "_held_up",
        "_out_us",
        "_since_us",
        "count",
        "recent_us",
        "rows",
        "said_bytes",
        "said_rows",
        "size_bytes",
        "timed",
        "usual_us",
    )

    def __init__(self) -> None:
        self.count = 0  # requests behind the means of rows and bytes
        self.said_rows = self.rows = self.said_bytes = self.size_bytes = 0.0
        self.timed = 0  # requests behind the means of time
        self.usual_us = self.recent_us = 0.0
        self._at_us = self._since_us = 0
        self._held_up = False
        self._out_us = _IN_BAND  # since when recent / usual is outside the band

    def predict_mru(self, weights: Weights, rows: int, size_bytes: int) -> int:
        """Predict the cost of a request with this claim; a `size_bytes` of 0 is no claim."""
        found_rows, found_bytes = float(rows), float(size_bytes)
        if self.said_rows > 0.0:
            found_rows *= self.rows / self.said_rows
        if size_bytes == 0:
            if self.said_rows > 0.0:
                found_bytes = rows * self.size_bytes / self.said_rows
        elif self.said_bytes > 0.0:
            found_bytes *= self.size_bytes / self.said_bytes
        return milli_ru(
            weights.base_ru
            + weights.row_ru * found_rows
            + weights.byte_ru * found_bytes
            + weights.ms_ru * self.usual_us / 1_000.0
        )

    def learn(self, said_rows: int, said_bytes: int, rows: int, size_bytes: int) -> None:
        """Record the claimed and the found amounts of one request."""
        self.count += 1
        rate = 1.0 / self.count
        if rate < RATE:
            rate = RATE
            if rows > OUTLIER_TIMES * self.rows > 0.0:
                rows = int(OUTLIER_TIMES * self.rows)
            if size_bytes > OUTLIER_TIMES * self.size_bytes > 0.0:
                size_bytes = int(OUTLIER_TIMES * self.size_bytes)
        self.said_rows += rate * (said_rows - self.said_rows)
        self.rows += rate * (rows - self.rows)
        self.said_bytes += rate * (said_bytes - self.said_bytes)
        self.size_bytes += rate * (size_bytes - self.size_bytes)

    def charged_us(self, service_us: int) -> float:
        """Return the time to charge for work with this service time."""
        usual_us = self.usual_us
        us = float(service_us)
        if us <= usual_us or self.timed == 0:
            return us
        if us > HELD_UP_TIMES * usual_us:
            return usual_us
        if self.recent_us > BAND * usual_us:
            us *= usual_us / self.recent_us
            return us if us > usual_us else usual_us
        return us

    def time(self, service_us: int, now_us: int) -> float:
        """Record the service time of one request, and return the time to charge for it."""
        us = float(service_us)
        if self.timed == 0:
            self.timed = 1
            self.usual_us = self.recent_us = us
            self._at_us = self._since_us = now_us
            return us
        usual_us = self.usual_us
        held_up = us > HELD_UP_TIMES * usual_us
        if held_up:
            us = HELD_UP_TIMES * usual_us
        stalls = held_up and self._held_up and self.timed >= KNOWN
        self._held_up = held_up
        self.timed += 1
        rate = 1.0 / self.timed
        self.recent_us += (rate if rate > RECENT else RECENT) * (us - self.recent_us)
        passed_us = now_us - self._at_us
        self._at_us = now_us
        recent_us = self.recent_us
        young = self.timed <= KNOWN
        if young or (usual_us <= BAND * recent_us and recent_us <= BAND * usual_us):
            self._out_us = _IN_BAND
            if passed_us > rate * HISTORY_US:
                rate = RECENT if passed_us > RECENT * HISTORY_US else passed_us / HISTORY_US
            if not stalls:
                self.usual_us += rate * (us - usual_us)
        elif self._out_us == _IN_BAND or now_us < self._out_us:
            self._out_us = now_us
        elif now_us - self._out_us > self._frozen_us(recent_us > usual_us):
            self.usual_us = recent_us
            self.timed = KNOWN
            self._out_us = _IN_BAND
        return self.charged_us(service_us)

    def begin_with(self, other: CostEstimate) -> None:
        """Begin with the means of another estimate."""
        self.restore(other.row(), other._at_us)
        self.timed, self.recent_us = other.timed, other.recent_us
        self._out_us, self._since_us = other._out_us, other._since_us

    def row(self) -> EstimateRow:
        """Return the numbers of this estimate."""
        return EstimateRow(
            self.count, self.said_rows, self.rows, self.said_bytes, self.size_bytes, self.usual_us
        )

    def restore(self, row: EstimateRow, now_us: int) -> None:
        """Begin with a recorded estimate; it weighs as much as `RESTORED` requests."""
        self.count = min(row.requests, RESTORED)
        self.said_rows, self.rows = row.said_rows, row.rows
        self.said_bytes, self.size_bytes = row.said_bytes, row.size_bytes
        self.usual_us = self.recent_us = row.usual_us
        self.timed = 8 * RESTORED if row.usual_us > 0.0 else 0
        self._at_us = now_us
        self._since_us = now_us - HISTORY_US

    def _frozen_us(self, slower: bool) -> int:
        """For how long work outside the band is an incident: what is known for long, for longer."""
        if not slower:
            return QUICKER_US
        known_us = self._out_us - self._since_us
        # Below 0 the clock has gone back, and nothing is known.
        return min(SLOWER_US, KNOWN_TIMES * known_us) if known_us >= 0 else SLOWER_US


class WorkRow(NamedTuple):
    """One estimate, for records and views; `caller` is empty for a whole table."""

    table: str
    operation: str
    caller: str
    estimate: EstimateRow


@final
class WorkEstimates:
    """The estimates, at most `estimates_max` of them."""

    __slots__ = ("_estimates", "estimates_max")

    def __init__(self, estimates_max: int) -> None:
        self.estimates_max = estimates_max
        self._estimates: dict[WorkKind, CostEstimate] = {}

    def find(self, kind: WorkKind) -> CostEstimate | None:
        """The caller's own, else that of its table; None if neither is known."""
        found = self._estimates.get(kind)
        if found is None and kind[2]:
            found = self._estimates.get((kind[0], kind[1], ""))
        return found

    def meet(self, kind: WorkKind, now_us: int) -> CostEstimate:
        """The caller's own; a new one begins with what its table usually takes."""
        found = self._estimates.get(kind)
        if found is None:
            found = CostEstimate()
            if kind[2]:
                found.begin_with(self.meet((kind[0], kind[1], ""), now_us))
                found.count = 0  # its rows and bytes are its own
            if len(self._estimates) >= self.estimates_max:
                self._forget()
            self._estimates[kind] = found
        return found

    def rows(self) -> list[WorkRow]:
        """All estimates, the tables' first."""
        kinds = sorted(self._estimates, key=lambda kind: kind[2] != "")
        return [WorkRow(*kind, self._estimates[kind].row()) for kind in kinds]

    def restore(self, rows: Iterable[WorkRow], now_us: int) -> None:
        """Begin with what was kept, where nothing has been learned since."""
        for row in rows:
            kind = (row.table, row.operation, row.caller)
            if kind not in self._estimates and len(self._estimates) < self.estimates_max:
                estimate = self._estimates[kind] = CostEstimate()
                estimate.restore(row.estimate, now_us)

    def __len__(self) -> int:
        return len(self._estimates)

    def _forget(self) -> None:
        estimates = self._estimates
        looked: list[WorkKind] = []
        for kind in estimates:
            looked.append(kind)
            if len(looked) == LOOKS:
                break
        least = min(looked, key=lambda kind: estimates[kind].count)
        for kind in looked:
            estimate = estimates.pop(kind)
            if kind != least:
                estimates[kind] = estimate  # behind the others: the next search looks elsewhere


def _check_weight(name: str, weight: float, lowest: float) -> None:
    if not lowest <= weight <= WEIGHT_RU_MAX:
        raise ValueError(f"{name} must be from {lowest} to {WEIGHT_RU_MAX}, not {weight}")
