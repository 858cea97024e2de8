"""Prices: what a request unit costs while a part of the service suffers from too much work.

Refuses nobody; it sets a price, and whose budget that empties is refused by `request_units`. The
idea is Mussel's (Gaonkar, Getz and Cho, 2025): while the latency ratio is low, the request units of
the lowest class cost more, and if that is not enough, those of more classes. Their form, one ratio
and one ladder of prices for a whole dispatcher, is `ShedSettings(form="prices")`. It harms where
slowness has another cause than load, and where one shard of ten is slow; so here:

    a cell          one operation on one shard: it has a ratio and a ladder of its own, so a request
                    to a healthy shard costs 1
    trouble         the ratio is low *and* most of what the engine ends is too late for anybody,
                    though the queue has let it in. Slow work alone raises nothing, nor does what a
                    queue of ours refuses: it orders its line itself, better than a price could
    a raise         comes after `trial_windows` of trouble, and is an experiment: in `step_windows`
                    the ratio must be better, the queue shorter or the refusals fewer, by
                    `gain_permille`, or all that ends be in time again: the ratio remembers what was
                    slow before, and on it the classes above were priced for a flood that was over
                    (`shared-engine`). If not, it goes a step further, for as long as there is too
                    much a little less shows nothing. If the last step does not help either, load is
                    not the cause: prices go back at once, and the next try waits, each time twice
                    as long
                    All begins anew, and waits for `yield_windows`, where a queue of ours has just
                    found fewer places, and when no more than those are at work: a raise meanwhile
                    would be taken for what has helped. While somebody pays more, that a place is
                    free gives none back
    a price         rises further while the ratio falls, to `price_max_milli`, class by class from
                    BULK up, never below what the class above pays. CRITICAL has none
    a price held    is lowered a step each `hold_windows`, to see whether it is still needed
    no trouble      all classes come down together, by half a window. If trouble is back within
                    `relapse_windows` they go back to what has helped, and stay for `rest_windows`
                    once it is over, each time twice as long, to `rest_windows_max`

A price is at most 4, so whoever stays within a quarter of its quota never notices, and some of
each class always flows; so there is always something to measure. A cell with too few samples to
judge holds its ratio for two seconds, then it is neutral.

What is it for, where there is a queue? For a line that is not ours. Several dispatchers before one
engine have more places together than it has, and none of them can find fewer: whoever tries half
gets half as much done, and gives them back. Then the line is in the engine, first come, first
served, and our queues are empty. Only its latency tells. The lab plays it: `shared-engine`. But
where nothing at all is in time the search of places sees that too, and saves more than a price
does. So prices yield to it, and `sluicegate kv` has them off (docs/decisions/0024).

Cost: two look-ups each charge, and a ratio's `add` each end. Bounds: `cells_max` cells; what comes
beyond has no price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import (
    BULKHEAD_FULL,
    OVERLOADED,
    QUEUE_FULL,
    QUEUE_TIMEOUT,
    SHED,
)
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.latency_ratio import LatencyRatio, RatioSettings
from sluicegate.kernels.token_bucket import PRICE_MAX_MILLI, PRICE_ONE_MILLI
from sluicegate.policies.budgets import Pricing
from sluicegate.policies.settings import check_ranges
from sluicegate.policies.stack import BaseEndObserver
from sluicegate.policies.stress import BaselineRow, StressSource, StressState

CLASSES: Final = len(Criticality)
# Refusals that say that there is more work than gets done, and not that somebody asks too much.
_CROWDED: Final = (SHED, QUEUE_FULL, QUEUE_TIMEOUT, OVERLOADED, BULKHEAD_FULL)
_WINDOWS_MAX: Final = 1 << 20
LATE_AGAIN: Final = 2  # windows that may pass in between, before a first raise


@final
class PriceLadder:
    """What a request unit costs each class, in thousandths; it is climbed from BULK up."""

    __slots__ = ("_dearest", "_max_milli", "_widen_at_milli", "milli")

    def __init__(self, widen_at_milli: int, max_milli: int, dearest: Criticality) -> None:
        self._widen_at_milli = widen_at_milli
        self._max_milli = max_milli
        self._dearest = int(dearest)
        self.milli = [PRICE_ONE_MILLI] * CLASSES

    @property
    def raised(self) -> bool:
        """Whether anybody pays more than the plain price."""
        return self.milli[CLASSES - 1] > PRICE_ONE_MILLI

    @property
    def is_at_its_end(self) -> bool:
        """Whether no class can pay more."""
        return self.milli[self._dearest] >= self._max_milli

    def raise_prices(self, factor_milli: int) -> None:
        """Priced classes cost more, and perhaps one more is priced."""
        milli = self.milli
        below = self._max_milli
        for place in range(CLASSES - 1, self._dearest - 1, -1):
            if below < self._widen_at_milli:
                return
            # Judged by what the class below stood at before.
            below, price = milli[place], milli[place] * factor_milli // PRICE_ONE_MILLI
            milli[place] = min(price, self._max_milli)

    def lower_first(self, factor_milli: int) -> bool:
        """The most important class that is priced becomes cheaper; whether there was one."""
        for place in range(self._dearest, CLASSES):
            if self.milli[place] > PRICE_ONE_MILLI:
                self._lower(place, factor_milli)
                return True
        return False

    def lower_all(self, factor_milli: int) -> None:
        """All become cheaper."""
        for place in range(self._dearest, CLASSES):
            self._lower(place, factor_milli)

    def _lower(self, place: int, factor_milli: int) -> None:
        price = self.milli[place] * factor_milli // PRICE_ONE_MILLI
        self.milli[place] = price if price > PRICE_ONE_MILLI else PRICE_ONE_MILLI


@final
@dataclass(frozen=True, kw_only=True)
class PriceSettings:
    """When a price moves, by how much, and how far."""

    window_us: int = ranged(500_000, 1_000, 1 << 40)
    samples_min: int = ranged(40, 1, 1 << 20)
    ratio_enter: float = ranged(0.6, 0.0, 1.0)
    ratio_leave: float = ranged(0.85, 0.0, 1.0)
    load_permille: int = ranged(50, 0, 1_000)  # refused behind us, of what is charged here
    dearer_milli: int = ranged(2_000, PRICE_ONE_MILLI + 1, 2 * PRICE_ONE_MILLI)
    cheaper_milli: int = ranged(500, 1, PRICE_ONE_MILLI - 1)
    widen_at_milli: int = ranged(4_000, PRICE_ONE_MILLI + 1, PRICE_MAX_MILLI)
    price_max_milli: int = ranged(4_000, PRICE_ONE_MILLI + 1, PRICE_MAX_MILLI)
    dearest: Criticality = Criticality.DEGRADED  # the most important class that is priced
    late_permille: int = ranged(500, 1, 1_000)  # ended after its deadline, of what ended
    late_windows: int = ranged(10, 1, _WINDOWS_MAX)  # for so long that is a sign: as for the ratio
    trial_windows: int = ranged(4, 1, _WINDOWS_MAX)
    step_windows: int = ranged(2, 1, _WINDOWS_MAX)  # of a raise that goes further
    relapse_windows: int = ranged(20, 1, _WINDOWS_MAX)  # trouble so soon after is the same again
    rest_windows: int = ranged(8, 1, _WINDOWS_MAX)  # for which prices then stay, once it is over
    rest_windows_max: int = ranged(32, 1, _WINDOWS_MAX)
    gain_permille: int = ranged(200, 1, 999)
    yield_windows: int = ranged(6, 1, _WINDOWS_MAX)  # to fewer places, for which the queue orders
    pause_windows: int = ranged(8, 1, _WINDOWS_MAX)  # after the first raise that did not help
    pause_windows_max: int = ranged(120, 1, _WINDOWS_MAX)
    hold_windows: int = ranged(10, 1, _WINDOWS_MAX)
    cells_max: int = ranged(1_000, 1, 1 << 20)
    moves: bool = True  # else all stay plain, and only the signs are kept

    def __post_init__(self) -> None:
        check_ranges("prices", self)


class CellPrice(NamedTuple):
    """One cell that is not at the plain price, or whose ratio is low."""

    operation: str
    shard: str
    ratio: float
    prices_milli: tuple[int, ...]


class PriceStats(NamedTuple):
    """The dearest price of each class, where prices are raised, and what became of raises."""

    prices_milli: tuple[int, ...]
    cells: tuple[CellPrice, ...]
    raises: int
    in_vain: int  # raises that were taken back since they did not help


@final
class _Signs:
    """What some windows looked like."""

    __slots__ = ("charged", "queue_us", "ratio", "refused", "windows")

    def __init__(self) -> None:
        self.windows = self.charged = self.refused = 0
        self.queue_us = 0  # of all windows
        self.ratio = 1.0  # of the last

    def add(self, ratio: float, queue_us: int, charged: int, refused: int) -> None:
        """One more window."""
        self.windows += 1
        self.ratio = ratio
        self.queue_us += queue_us
        self.charged += charged
        self.refused += refused

    def better_than(self, before: _Signs, gain: float) -> bool:
        """Whether one of them is better by so much, and not by chance."""
        less = 1.0 - gain
        if self.ratio * less > before.ratio:
            return True
        if self.queue_us * before.windows < before.queue_us * self.windows * less:
            return True
        now, then = self.refused / max(1, self.charged), before.refused / max(1, before.charged)
        # Shares of two samples differ by less than thrice this in 997 of 1,000 cases.
        chance = then * (1.0 - then) / max(1, before.charged) + now * (1.0 - now) / max(
            1, self.charged
        )
        return now < then * less and (then - now) ** 2 > 9.0 * chance


@final
class _Cell:
    """One operation on one shard."""

    __slots__ = (
        "_before", "_ended_in_trial", "_held", "_kept", "_late_in_trial", "_late_windows",
        "_lowest", "_pause", "_pause_next",
        "_relapse", "_rest", "_rest_next", "_settings", "_since", "_trying", "charged", "due_us",
        "ended", "in_vain", "ladder", "last_ratio", "late", "raises", "ratio", "refused",
        "troubled",
    )  # fmt: skip

    def __init__(self, settings: PriceSettings) -> None:
        self._settings = settings
        self.ratio = LatencyRatio(
            RatioSettings(
                enter=settings.ratio_enter,
                leave=max(settings.ratio_leave, settings.ratio_enter),
                samples_min=settings.samples_min,
                confirm_us=0,  # a raise is tried, so what was chance is taken back
                hold_us_max=2_000_000,
            )
        )
        self.ladder = PriceLadder(
            settings.widen_at_milli, settings.price_max_milli, settings.dearest
        )
        self.last_ratio = 1.0
        self.due_us = 0
        self.charged = self.refused = self.ended = self.late = 0
        self._late_windows = 0
        self._kept: list[int] = []  # prices that were let go when trouble was over
        self._relapse = self._rest = 0
        self._rest_next = settings.rest_windows
        self._since = _Signs()  # the last raise, or the beginning of trouble
        self._before = _Signs()  # the raise that is tried
        self._trying = False
        self._late_in_trial = False
        self._ended_in_trial = 0
        self._pause = 0
        self._pause_next = settings.pause_windows
        self._held = 0
        self._lowest = 1.0  # the ratio at the last raise
        self.troubled = False  # in the last window
        self.raises = self.in_vain = 0

    def end_window(self, picture: StressState, now_us: int) -> None:
        """Look at what it was like, and move the prices."""
        settings, ladder = self._settings, self.ladder
        self.due_us = now_us + settings.window_us
        ratio = self.last_ratio = self.ratio.ratio(now_us)
        charged, refused, ended = self.charged, self.refused, self.ended
        late = is_late = 1_000 * self.late > settings.late_permille * self.ended
        if late:
            self._late_windows = settings.late_windows
        elif self._late_windows > 0:
            self._late_windows -= 1
            late = ladder.raised or self._late_windows >= settings.late_windows - LATE_AGAIN
        self.charged = self.refused = self.ended = self.late = 0
        crowded = late or picture.crowded
        crowded = crowded or 1_000 * refused > settings.load_permille * charged
        self.troubled = self.ratio.stressed and crowded
        if not settings.moves:
            return
        if not late or not self.ratio.stressed:
            self._relax()
            return
        if self._relapses():
            return
        self._late_in_trial = self._late_in_trial or is_late
        self._ended_in_trial += ended
        self._since.add(ratio, picture.queue_us or 0, charged, refused)
        needed = settings.step_windows if self._trying else settings.trial_windows
        if self._pause > 0:
            self._pause -= 1
        elif self._since.windows < needed:
            return
        elif self._trying:
            self._judge()
        elif not ladder.raised or (is_late and (ratio < self._lowest or not ladder.is_at_its_end)):
            self._raise(ratio)
        else:
            self._hold()

    def begin_anew(self) -> None:
        """Let prices go, wait, and see what trouble is left before a first raise."""
        self._trying = False
        self._since = _Signs()
        self._kept = []
        self._relapse = 0
        self.ladder.lower_all(1)
        self._pause = max(self._pause, self._settings.yield_windows)

    def _relax(self) -> None:
        """Not in trouble: prices come down, at once or after a rest, and are not forgotten yet."""
        settings, ladder = self._settings, self.ladder
        self._trying = False
        self._since = _Signs()
        if ladder.raised:
            if self._rest > 0:
                self._rest -= 1
                return
            if self._relapse == 0 or not self._kept:
                self._kept = list(ladder.milli)
            self._relapse = settings.relapse_windows
            ladder.lower_all(settings.cheaper_milli)
            return
        if self._relapse > 0:
            self._relapse -= 1
        else:
            self._kept = []
            self._rest_next = settings.rest_windows
        if not self.ratio.stressed:
            self._pause, self._pause_next = 0, settings.pause_windows

    def _relapses(self) -> bool:
        """Trouble is back as soon as the prices went: they do so too, and stay for longer."""
        if self._relapse == 0 or not self._kept:
            return False
        self.ladder.milli[:] = self._kept
        self._kept = []
        self._relapse = 0
        self._rest = self._rest_next
        self._rest_next = min(2 * self._rest_next, self._settings.rest_windows_max)
        self._since = _Signs()
        return True

    def _raise(self, ratio: float) -> None:
        self.ladder.raise_prices(self._settings.dearer_milli)
        self.raises += 1
        self._lowest = ratio
        self._before, self._since = self._since, _Signs()
        self._trying = True
        self._late_in_trial = False
        self._ended_in_trial = 0
        self._held = 0

    def _judge(self) -> None:
        """Keep a raise that has helped; else go further, or load is not the cause."""
        settings = self._settings
        # The ratio remembers what was slow before the raise; what is in time by now is not.
        helped = self._ended_in_trial > 0 and not self._late_in_trial
        helped = helped or self._since.better_than(self._before, settings.gain_permille / 1_000)
        self._late_in_trial = False
        self._ended_in_trial = 0
        if not helped and not self.ladder.is_at_its_end:
            self.ladder.raise_prices(settings.dearer_milli)
            self._since = _Signs()
            return
        self._trying = False
        self._since = _Signs()
        if helped:
            self._pause_next = settings.pause_windows
            return
        self.in_vain += 1
        self._kept = []
        self.ladder.lower_all(1)
        self._pause = self._pause_next
        self._pause_next = min(2 * self._pause_next, settings.pause_windows_max)

    def _hold(self) -> None:
        self._held += 1
        if self._held >= self._settings.hold_windows:
            self._held = 0
            self._lowest = 1.0  # where it is still needed, it is raised again,
            self._since = _Signs()  # and compared with what it was like without
            self.ladder.lower_first(1_000_000 // self._settings.dearer_milli)


@final
class LocalPrices(BaseEndObserver):
    """The prices of all cells: a `Pricing`, and an observer of the stack."""

    __slots__ = ("_cells", "_count", "_dear_us", "_stress", "settings")

    def __init__(self, stress: StressSource, settings: PriceSettings | None = None) -> None:
        self.settings = PriceSettings() if settings is None else settings
        self._dear_us = -1  # when somebody was last charged more than the plain price
        self._stress = stress
        self._cells: dict[str, dict[str, _Cell]] = {}  # by shard and operation
        self._count = 0

    def price_milli(self, request: Request, now_us: int) -> int:
        """What a request unit costs this request now, in thousandths, which is charged."""
        cell = self._cell(request)
        if cell is None:
            return PRICE_ONE_MILLI
        if now_us >= cell.due_us or cell.due_us - now_us > self.settings.window_us:
            cell.end_window(self._stress.read(now_us), now_us)
        cell.charged += 1
        price_milli = cell.ladder.milli[request.criticality]
        if price_milli > PRICE_ONE_MILLI:
            self._dear_us = now_us
        return price_milli

    def is_dear(self, now_us: int) -> bool:
        """Whether somebody has been charged more than the plain price of late."""
        return self._dear_us >= 0 and 0 <= now_us - self._dear_us < self.settings.window_us

    def ratio(self, request: Request) -> float | None:
        """The latency ratio of its operation and shard in the last window; None: not known."""
        cell = self._cell(request)
        return None if cell is None else cell.last_ratio

    def begin_anew(self) -> None:
        """Something else is helping: see what trouble is left before a first raise."""
        for cells in self._cells.values():
            for cell in cells.values():
                cell.begin_anew()

    def is_troubled(self, shard: str, now_us: int) -> bool:
        """Whether something on it was slow, and had too much to do, in the window before."""
        cells = self._cells.get(shard)
        return cells is not None and any(
            cell.troubled and now_us < cell.due_us + self.settings.window_us
            for cell in cells.values()
        )

    # A stack tells its observers; these are what concerns prices.

    def record_refusal(self, request: Request, stage: str, decision: Decision, now_us: int) -> None:
        """Refused further on, where that is for want of room."""
        if decision.reason in _CROWDED:
            cell = self._cell(request)
            if cell is not None:
                cell.refused += 1

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Work has ended: if a backend did it, its time counts, and whether it was too late."""
        measured = request.measured
        if measured is None or measured.from_cache or outcome is Outcome.IGNORE:
            return
        cell = self._cell(request)
        if cell is None:
            cell = self._new_cell(request.shard, request.operation)
            if cell is None:
                return
        cell.ended += 1
        left_us = request.remaining_us(now_us)
        if left_us is not None and left_us <= 0:
            cell.late += 1
        cell.ratio.add(measured.service_us if measured.service_us > 0 else 0, now_us)

    def baselines(self) -> list[BaselineRow]:
        """What is usual, of each cell of which it is known."""
        return [
            BaselineRow(shard, operation, cell.ratio.baseline_us(), cell.ratio.learned_us)
            for shard, cells in self._cells.items()
            for operation, cell in cells.items()
            if cell.ratio.baseline_us() > 0.0
        ]

    def begin_with(self, row: BaselineRow) -> None:
        """Begin with what was usual elsewhere, where that is not known here."""
        cell = self._cells.get(row.shard, {}).get(row.operation)
        if cell is None:
            cell = self._new_cell(row.shard, row.operation)
        if cell is not None:
            cell.ratio.begin_with(row.baseline_us, row.learned_us)

    def stats(self) -> PriceStats:
        """Where prices are raised."""
        dearest = [PRICE_ONE_MILLI] * CLASSES
        raised: list[CellPrice] = []
        raises = in_vain = 0
        for shard, cells in self._cells.items():
            for operation, cell in cells.items():
                raises += cell.raises
                in_vain += cell.in_vain
                if cell.ladder.raised or cell.ratio.stressed:
                    prices = tuple(cell.ladder.milli)
                    raised.append(CellPrice(operation, shard, cell.last_ratio, prices))
                    dearest = [max(pair) for pair in zip(dearest, prices, strict=True)]
        return PriceStats(tuple(dearest), tuple(raised), raises, in_vain)

    def _cell(self, request: Request) -> _Cell | None:
        cells = self._cells.get(request.shard)
        return None if cells is None else cells.get(request.operation)

    def _new_cell(self, shard: str, operation: str) -> _Cell | None:
        if self._count >= self.settings.cells_max:
            return None
        self._count += 1
        cell = _Cell(self.settings)
        self._cells.setdefault(shard, {})[operation] = cell
        return cell


@final
class SignsBeside:
    """Another pricing, while `LocalPrices` keep the signs that a penalty goes by.

    They look at what is charged, so somebody has to tell them of it.
    """

    __slots__ = ("_pricing", "_signs")

    def __init__(self, signs: LocalPrices, pricing: Pricing) -> None:
        self._signs = signs
        self._pricing = pricing

    def price_milli(self, request: Request, now_us: int) -> int:
        """By the other one."""
        self._signs.price_milli(request, now_us)
        return self._pricing.price_milli(request, now_us)
