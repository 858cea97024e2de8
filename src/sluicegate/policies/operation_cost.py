"""Operation cost: what one class of work costs, for one caller and another.

The part of `request_units` that predicts, learns and cuts scans into chunks; it charges nobody.
Three things make a prediction:

    weights      of a request, a row, a byte, a millisecond: `kernels/cost_model.py`
    latency      the past p95 of its shard in the backend, without any queue of ours
    ratio        how many times that the work of this caller costs: `CostRatio`, one a caller

The ratio is for a caller whose shapes are wrong. In the lab's `cost-drift`, case `liar`, one tenant
in ten says 1 row and has 200 looked at. With one model for all (`ratios_max=0`) the error is 2.2
times what the noise leaves, the other nine are charged 1.2 times too much before the fact, and in
the seed's form, which settles nothing, the tenant pays 18% of what it costs. With a ratio the error
is 1.0 times the noise's, the others notice nothing, and it pays all but the first few. Whoever
gives no name has none.

The weights do not learn what a caller's ratio explains. From a new caller they learn at most a
factor of e at a time, because how much of it is its own is not known yet.

**Chunks.** A scan of 200 RU holds its place at work for as long as 200 reads; cut in chunks of 10
it queues twenty times, and a read that matters more passes between two of them. In the lab's
`noisy-neighbour` 89% of the reads beside scans in one piece are answered in half a second; beside
chunks of 10, 20 and 50 RU all are, with a p99 of 1.09, 1.16 and 1.75 times what they have alone.
Each chunk costs its fixed part again.

**A slow engine is not its callers' doing.** Time is charged as it would be at the usual speed of
its shard. If an operation took 3 ms at the p95, and now takes 150, each of its milliseconds counts
for a fiftieth of `SLOWER_MAX`. Else whoever stays within its quota would be refused for a slow
shard, on healthy ones too: in the drill `slow-down` a read of the slow shard cost 16 request units
where it had cost 1.3, and three in a thousand were refused on the others. What is usual follows at
once where work gets quicker, and doubles in `USUAL_DOUBLES_US` where it stays slow. Of a shard that
is new it is what is usual on the shard in the middle: a dispatcher may begin during an incident.
Rows and bytes are charged whole at any time. What took no longer than is usual is charged whole,
too: the mean remembers a stall for `LATE_SAMPLES`, and while it scaled healthy reads down the
weights learned that they are cheap. The next stall then left a debt: twelve of twelve callers at 20
a second, with 1.5 times the quota they need, were refused for it, 9 to 54 times, for 0.7 to 2.7 s.

**Nor is a line in it.** For the first `KNOWN_AFTER_US` nobody knows what work takes without one, so
what is usual is taken from the `QUIET_MAX` that had the least other work beside them, and from the
quickest second so far. A dispatcher that began at 95% of what its engine can do took the line for
what reads cost, and refused 5% of even work for their quotas in its first 12 s, of memoryless work
15%; now none, and 3%, which is what a day of such load costs by chance. In a line all take about as
long, so their mean is near the p95; where it alone has risen it is the mean that is brought back.

Cost: a look-up, an exponential when it learns; a request a chunk. Bounds: `ratios_max` callers over
all operations; of the `LOOKS` oldest, one that is near 1 is forgotten first. `SHARDS_MAX` shards of
an operation have a latency of their own, the rest share one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, final

from sluicegate.contracts.request import NO_ATTRIBUTES, Request
from sluicegate.kernels.cost_model import AMOUNT_MAX, CostModel, CostRatio, Weights
from sluicegate.kernels.native import mypyc_attr
from sluicegate.kernels.windowed_quantile import WindowedQuantile
from sluicegate.policies.work_estimates import WorkSketch

LOOKS: Final = 4
SHARDS_MAX: Final = 256
NEAR: Final = 1.1  # whoever costs less than so many times the usual, or that part of it
SECOND_US: Final = 1_000_000
SLOWER_MAX: Final = 1.25  # than usual, and still charged as it is
USUAL_DOUBLES_US: Final = 600 * SECOND_US
KNOWN_AFTER_US: Final = 30 * SECOND_US  # until then what is slow may be what is usual
KNOWN_SAMPLES: Final = 20
QUIET_MAX: Final = 32
LATE_SAMPLES: Final = 32
MEAN_SECONDS: Final = 60
PEERS_MIN: Final = 3  # shards, to say of a new one whether it is slow
_REFRESH_US: Final = 100_000
_NEWS_US: Final = 50_000
ROWS: Final = "rows"
SIZE: Final = "size_bytes"


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class WorkShape:
    """What is known of work before it is done: rows to look at, bytes to move.

    Where bytes are an estimate, `said_bytes` is without it, `heaviest_bytes` what the heaviest of
    its kind has moved, `unseen_bytes` how much more the heaviest rows of its table would be, and
    `sketch` the caller's own, if there is one.
    """

    __slots__ = ("heaviest_bytes", "rows", "said_bytes", "size_bytes", "sketch", "unseen_bytes")

    def __init__(self, rows: int = 1, size_bytes: int = 0) -> None:
        self.rows = rows
        self.size_bytes = self.said_bytes = size_bytes
        self.heaviest_bytes = 0
        self.unseen_bytes = 0
        self.sketch: WorkSketch | None = None

    def __repr__(self) -> str:
        return f"WorkShape(rows={self.rows}, size_bytes={self.size_bytes})"


def read_shape(request: Request) -> WorkShape:
    """The shape in a request's attributes: `rows` (1 if not said) and `size_bytes` (0).

    What is no number, or none that can be, counts as not said.
    """
    attributes = request.attributes
    if attributes is NO_ATTRIBUTES:
        return WorkShape()
    if isinstance(attributes, dict):  # mypyc asks a dict directly, another mapping the long way
        return WorkShape(_number(attributes.get(ROWS), 1), _number(attributes.get(SIZE), 0))
    return WorkShape(_number(attributes.get(ROWS), 1), _number(attributes.get(SIZE), 0))


def _number(text: str | None, otherwise: int) -> int:
    if text is None or len(text) > 16 or not (text.isascii() and text.isdigit()):
        return otherwise
    return min(int(text), AMOUNT_MAX)


@final
class CallerRatios:
    """The ratio of each caller in each operation, at most `ratios_max` of them."""

    __slots__ = ("_correction_max", "_learn_rate", "_ratios", "ratios_max")

    def __init__(self, ratios_max: int, *, learn_rate: float, correction_max: int) -> None:
        self.ratios_max = ratios_max if learn_rate > 0.0 else 0
        self._learn_rate = learn_rate / 2
        self._correction_max = correction_max
        self._ratios: dict[tuple[str, str], CostRatio] = {}

    def find(self, operation: str, caller: str) -> CostRatio | None:
        """What is known; None if nothing is."""
        return self._ratios.get((operation, caller)) if self._ratios else None

    def meet(self, operation: str, caller: str) -> CostRatio | None:
        """The same, and a new one for whoever has none; None for who has no name."""
        if not caller or self.ratios_max == 0:
            return None
        key = (operation, caller)
        ratio = self._ratios.get(key)
        if ratio is None:
            if len(self._ratios) >= self.ratios_max:
                self._forget()
            ratio = CostRatio(self._learn_rate, self._correction_max)
            self._ratios[key] = ratio
        return ratio

    def __len__(self) -> int:
        return len(self._ratios)

    def _forget(self) -> None:
        """The oldest, or one of the next few if that would be missed less."""
        ratios = self._ratios
        first = next(iter(ratios))
        for _ in range(min(LOOKS, len(ratios))):
            key = next(iter(ratios))
            ratio = ratios.pop(key)
            if 1.0 / NEAR < ratio.times < NEAR:
                return
            ratios[key] = ratio  # behind the others: the next one looks elsewhere
        del ratios[first]


@final
class _MeanTimes:
    """How long work takes in the mean: of late, and in the seconds before."""

    __slots__ = ("_count", "_ends_us", "_seconds", "_sum_us", "last_us", "least_us", "long_us")

    def __init__(self) -> None:
        self._sum_us = self._count = self._seconds = 0
        self._ends_us = -1
        self.last_us = self.least_us = self.long_us = 0.0  # 0: not known yet

    def add(self, service_us: int, now_us: int) -> None:
        """It took so long; a second goes on until it has enough to say."""
        if self._ends_us < 0:
            self._ends_us = now_us + SECOND_US
        self._sum_us += service_us
        self._count += 1
        if self.last_us == 0.0:
            self.last_us = float(service_us)
        self.last_us += (service_us - self.last_us) / LATE_SAMPLES
        if self._count < KNOWN_SAMPLES or 0 < self._ends_us - now_us <= SECOND_US:
            return
        mean_us = self._sum_us / self._count
        if self._seconds < MEAN_SECONDS:
            self._seconds += 1
        self.long_us += (mean_us - self.long_us) / self._seconds
        if self.least_us == 0.0 or mean_us < self.least_us:
            self.least_us = mean_us
        self._sum_us = self._count = 0
        self._ends_us = now_us + SECOND_US


@final
class _QuietTimes:
    """How long work took that had the least other work beside it."""

    __slots__ = ("_beside", "_most", "_service_us")

    def __init__(self) -> None:
        self._beside: list[int] = []
        self._most = 0  # of those
        self._service_us: list[int] = []

    def add(self, service_us: int, beside: int) -> None:
        """It took so long, beside so many."""
        if len(self._beside) >= QUIET_MAX:
            if beside > self._most:
                return
            place = self._beside.index(self._most)  # the oldest of those
            del self._beside[place], self._service_us[place]
        self._beside.append(beside)
        self._service_us.append(service_us)
        if beside != self._most:
            self._most = max(self._beside)

    def p95_us(self) -> float:
        """Of few, one of the longest."""
        return float(sorted(self._service_us)[int(0.95 * (len(self._service_us) - 1))])

    def mean_us(self) -> float:
        """Of as many as there are."""
        return sum(self._service_us) / len(self._service_us)


@final
class _ShardLatency:
    """How long one class of work takes on one shard, and how long it usually does."""

    __slots__ = (
        "_at_us",
        "_known",
        "_means",
        "_peers",
        "_quiet",
        "_recent_us",
        "_since_us",
        "_times",
        "p95_ms",
        "usual_mean_us",
        "usual_us",
    )

    def __init__(self, p95_ms: float, peers: dict[str, _ShardLatency]) -> None:
        self._peers = peers
        self._times = WindowedQuantile(6, 10 * SECOND_US)
        self._means = _MeanTimes()
        self._quiet: _QuietTimes | None = _QuietTimes()
        self._at_us = self._since_us = -1  # of the last look, and of the first sample
        self._known = False
        self.usual_us = self._recent_us = 0.0
        self.usual_mean_us = 0.0  # 0: not known
        self.p95_ms = p95_ms

    def add(self, service_us: int, beside: int, now_us: int) -> None:
        """It took so long, and so many were under way when it was admitted."""
        self._times.add(service_us, now_us)
        self._means.add(service_us, now_us)
        if self._quiet is not None:
            self._quiet.add(service_us, beside)
        if self._since_us < 0:
            self._since_us = now_us
        # What took long may be the first of many; a look is as dear as two reads, so not at each.
        pause_us = _NEWS_US if service_us > 2.0 * self._recent_us else _REFRESH_US
        if not 0 <= now_us - self._at_us < pause_us:
            self._look(now_us)

    def restore_usual(self, p95_ms: float, mean_ms: float) -> None:
        """So long it took before: what is slower from the beginning is slow."""
        self.usual_us = p95_ms * 1_000
        self.usual_mean_us = mean_ms * 1_000
        self._known = True
        self._quiet = None

    def at_usual_speed(self, service_us: int) -> float:
        """How long it would have taken, in milliseconds."""
        most_us = SLOWER_MAX * self.usual_us
        us = float(service_us)
        times = most_us / self._recent_us if self._recent_us > most_us else 1.0
        # In a line all take about as long, so the mean is nearer to the p95 than it usually is.
        mean_us = SLOWER_MAX * self.usual_mean_us
        if us <= mean_us:  # What was slow is over, or did not meet this one.
            times = 1.0
        elif 0.0 < mean_us < times * self._means.last_us:
            times = mean_us / self._means.last_us
        us *= times
        # The first slow ones come before it is known that all are.
        is_bound = self._known or len(self._peers) >= PEERS_MIN
        return (most_us if is_bound and us > most_us else us) / 1_000

    def _look(self, now_us: int) -> None:
        times, means = self._times, self._means
        p95_us, recent_us = times.quantile(0.95, now_us), times.current.quantile(0.95)
        if p95_us is None or recent_us is None:
            return
        since_us = now_us if self._at_us < 0 else self._at_us
        passed_us = min(max(now_us - since_us, 0), USUAL_DOUBLES_US)
        self._at_us = now_us
        self._recent_us = recent_us
        quiet = self._quiet
        if quiet is not None:
            self.usual_us = min(p95_us, self._usual_of_peers_us(quiet.p95_us()))
            self.usual_mean_us = quiet.mean_us()
            if 0.0 < means.least_us < self.usual_mean_us:
                self.usual_mean_us = means.least_us
            is_old = now_us - self._since_us >= KNOWN_AFTER_US
            if is_old and times.count(now_us) >= KNOWN_SAMPLES:
                self._known = True
                self._quiet = None
        else:
            grown = 1.0 + passed_us / USUAL_DOUBLES_US
            self.usual_us = min(p95_us, self.usual_us * grown)
            if self.usual_mean_us == 0.0:  # restored without
                self.usual_mean_us = means.long_us
            elif means.long_us > 0.0:
                self.usual_mean_us = min(means.long_us, self.usual_mean_us * grown)
        self.p95_ms = min(p95_us, SLOWER_MAX * self.usual_us) / 1_000

    def _usual_of_peers_us(self, own_us: float) -> float:
        """What is usual on the shard in the middle; of few shards nobody can say which is slow."""
        usual = sorted([one.usual_us for one in self._peers.values() if one.usual_us > 0.0])
        if len(usual) < PEERS_MIN:
            return own_us
        return min(own_us, usual[(len(usual) - 1) // 2])


@final
class OperationCost:
    """What one class of work costs, as calibrated and as learned."""

    __slots__ = ("_first_ms", "_latencies", "model", "name", "weights")

    def __init__(
        self,
        name: str,
        weights: Weights,
        *,
        learn_rate: float,
        correction_max: int,
        margin_quantile: float | None,
        latency_ms: float,
    ) -> None:
        self.name = name
        self.weights = weights
        self.model = CostModel(
            weights,
            rate=learn_rate,
            correction_max=correction_max,
            margin_quantile=margin_quantile,
        )
        self._first_ms = latency_ms
        self._latencies: dict[str, _ShardLatency] = {}

    def latency_ms(self, shard: str) -> float:
        """The past p95, without the queue; that of a slow shard is little more than its usual."""
        if self.weights.ms_ru == 0.0:
            return 0.0
        latency = self._latencies.get(shard)
        if latency is None:
            latency = self._latencies.get("")
        return self._first_ms if latency is None else latency.p95_ms

    def latencies_ms(self) -> dict[str, float]:
        """The past p95 of each shard or table."""
        return {name: one.p95_ms for name, one in self._latencies.items()}

    def means_ms(self) -> dict[str, float]:
        """What it usually takes in the mean, on each shard or table where that is known."""
        return {
            name: one.usual_mean_us / 1_000
            for name, one in self._latencies.items()
            if one.usual_mean_us > 0.0
        }

    def restore(
        self,
        weights: Weights,
        margin: float,
        latencies_ms: Mapping[str, float],
        means_ms: Mapping[str, float],
    ) -> None:
        """Begin with what was learned before, where nothing has been learned since."""
        self.model.restore(weights, margin)
        for name, ms in latencies_ms.items():
            if len(self._latencies) < SHARDS_MAX and name not in self._latencies:
                latency = _ShardLatency(ms, self._latencies)
                latency.restore_usual(ms, means_ms.get(name, 0.0))
                self._latencies[name] = latency

    def predict_mru(self, shape: WorkShape, latency_ms: float, ratio: CostRatio | None) -> int:
        """What to charge for work of this shape, for a caller of this ratio."""
        mru = self.model.predict_mru(shape.rows, shape.size_bytes, latency_ms)
        return mru if ratio is None else ratio.scale(mru)

    def learn(
        self, shape: WorkShape, latency_ms: float, actual_mru: int, ratio: CostRatio | None
    ) -> None:
        """Take in what it was: first what is the caller's own, and of the rest the weights."""
        self.model.learn(shape.rows, shape.size_bytes, latency_ms, actual_mru, ratio)

    def charged_ms(self, shard: str, service_us: int) -> float:
        """How long work that took so long would have taken at the usual speed of its shard."""
        latencies = self._latencies
        latency = latencies.get(shard) or latencies.get("")
        return service_us / 1_000 if latency is None else latency.at_usual_speed(service_us)

    def time(self, shard: str, service_us: int, beside: int, now_us: int) -> None:
        """Take in how long it was in the backend, and how many were under way when it came."""
        if self.weights.ms_ru == 0.0 or service_us <= 0:
            return
        latencies = self._latencies
        latency = latencies.get(shard)
        if latency is None:
            if len(latencies) >= SHARDS_MAX:
                shard = ""
                latency = latencies.get(shard)
            if latency is None:
                latency = latencies[shard] = _ShardLatency(self._first_ms, latencies)
        latency.add(service_us, beside, now_us)


def rows_each(
    shape: WorkShape, whole_mru: int, fixed_mru: int, chunk_mru: int, chunks_max: int
) -> int:
    """How many rows a chunk has, if the whole and what costs without any row are predicted so."""
    rows = max(1, shape.rows)
    spare_mru = max(0, chunk_mru - fixed_mru)
    each = rows * spare_mru // max(1, whole_mru - fixed_mru)
    least = -(-rows // chunks_max)
    return min(rows, max(1, each, least))


def cut_chunks(request: Request, shape: WorkShape, each: int) -> Iterator[Request]:
    """Yield the chunks, of `each` rows and their part of the bytes."""
    rows = max(1, shape.rows)
    for first in range(0, rows, each):
        count = min(each, rows - first)
        size_bytes = shape.size_bytes * (first + count) // rows
        size_bytes -= shape.size_bytes * first // rows
        yield _chunk(request, first, count, size_bytes)


def _chunk(request: Request, first: int, rows: int, size_bytes: int) -> Request:
    attributes = {
        **request.attributes,
        "first_row": str(first),
        ROWS: str(rows),
        SIZE: str(size_bytes),
    }
    chunk = request.copy(attributes)
    if first:
        chunk.arrived_us = 0  # it comes when the one before has ended, and that was no wait
    return chunk
