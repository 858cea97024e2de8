"""Shed: under stress, what matters less goes first.

It reads the state of `stress` once each `window_us` (for prices `price_window_us`), and acts in
one of three forms:

    form           what it does                               heeds              from
    levels         refuses above a level that moves           crowded            DAGOR (2018)
    prices         refuses nobody; request units cost more    slow or crowded    Mussel (2025)
    utilization    refuses by ramps over the utilization      utilization        Netflix (2024)

**levels**, the default (`kernels/priority_shed`): class by class from BULK up, and within a class
one cohort of callers after the other, along a histogram of what really comes. It is the only one
that finds any depth of overload by itself. Slow work alone does not move it: if its cause is not
how much is let in, refusing would go on to the end and help nothing. Cohorts change each
`rotate_us`, so nobody is unlucky for long. A cohort at the mark is admitted in part, by chance.
`spread="key"` spreads by key instead of caller, so that few callers share the refusals evenly.
Before `queue`, which keeps its own delay short and goes by class too, it has little left to do (one
refusal in a hundred in the lab's `priority`); without a queue that refuses it comes too late, for
a plain line is full of the dead before the level is down.

**prices** is the form of the seed system: while the latency ratio is low, the request units of one
class cost more and its buckets drain faster; if stress lasts, more classes are priced. A price
rises by at most a factor of 2 a window, to `price_max_milli`; the next class begins when the one
below stands at `widen_at_milli`. It relaxes in the reverse order, slower than it rose, and only
when the picture is calm, which has its own hysteresis. A price never falls towards the less
important class, and CRITICAL has none. It reacts only as fast as buckets drain: combine it with
`levels`, two stages with one stress, where tenants have quotas. `price_milli` is read by the stage
that charges; reading moves it too, for that stage may refuse all before they come here. It is for
comparison: it harms where work is slow without being too much, and where one part of many is slow;
`prices.py` does not.

**utilization** (`kernels/utilization_shed`) needs no traffic to learn from, and sees the CPU only.

A `floor` of 1% of what would be refused passes in the two forms that refuse, so that no class
starves unseen; in hard overload nothing does. `levels_kept` are never refused: a wrong signal does
not shut the door. Windows without any traffic open the gate, `CATCH_UP_MAX` at once.

What comes is counted whether or not a later stage refuses it, so there is nothing to take back.
`retry_after_us` of a refusal is the time in which the level would come back to this one if it
rose from now on; by the ramps it is the setting of that name, for nobody knows.

Cost: an addition and a comparison; a hash for each caller once each `rotate_us`. Bounds: 4 classes
of `cohorts`; the cohorts of at most `callers_max` callers are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld
from sluicegate.contracts.reasons import SHED
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.priority_shed import COHORTS_MAX, PERMILLE, PriorityShed, cohort
from sluicegate.kernels.token_bucket import PRICE_MAX_MILLI, PRICE_ONE_MILLI
from sluicegate.kernels.utilization_shed import RampSettings, UtilizationShed
from sluicegate.policies.prices import CLASSES, PriceLadder
from sluicegate.policies.settings import check_ranges, one_of
from sluicegate.policies.stress import StressLevel, StressSource, StressState

RULE_ID: Final = "shed"
FORMS: Final = ("levels", "prices", "utilization")
SPREADS: Final = ("caller", "key")
# After so many quiet windows the gate is open, whatever it was.
CATCH_UP_MAX: Final = 128
_SPAN_US_MAX: Final = 1 << 53


@final
@dataclass(frozen=True, kw_only=True)
class ShedSettings(RampSettings):
    """Which form, how often it moves, and by how much."""

    form: str = "levels"
    window_us: int = ranged(200_000, 1, _SPAN_US_MAX)
    retry_after_us_max: int = ranged(30_000_000, 1, _SPAN_US_MAX)
    # levels
    spread: str = "caller"
    cohorts: int = ranged(128, 1, COHORTS_MAX)
    cut_permille: int = ranged(30, 1, PERMILLE)
    cuts_max: int = ranged(5, 1, 100)
    raise_permille: int = ranged(10, 1, PERMILLE)
    keep_permille: int = ranged(500, 0, PERMILLE - 1)
    levels_kept: int = 8
    rotate_us: int = ranged(3_600_000_000, 1, _SPAN_US_MAX)
    callers_max: int = ranged(65_536, 1, 10_000_000)
    # prices
    price_window_us: int = ranged(1_000_000, 1, _SPAN_US_MAX)
    dearer_milli: int = ranged(1_500, PRICE_ONE_MILLI + 1, 2 * PRICE_ONE_MILLI)
    dearer_hard_milli: int = ranged(2_000, PRICE_ONE_MILLI + 1, 2 * PRICE_ONE_MILLI)
    cheaper_milli: int = ranged(800, PRICE_ONE_MILLI // 2, PRICE_ONE_MILLI - 1)
    widen_at_milli: int = ranged(4_000, PRICE_ONE_MILLI + 1, PRICE_MAX_MILLI)
    price_max_milli: int = ranged(16_000, PRICE_ONE_MILLI + 1, PRICE_MAX_MILLI)
    dearest: Criticality = Criticality.DEGRADED  # the most important class that is priced
    # utilization
    retry_after_us: int = ranged(1_000_000, 0, _SPAN_US_MAX)

    def __post_init__(self) -> None:
        one_of("shed.form", self.form, FORMS)
        one_of("shed.spread", self.spread, SPREADS)
        check_ranges("shed", self)
        if not 0 <= self.levels_kept <= CLASSES * self.cohorts:
            raise BadValue(
                "shed.levels_kept",
                self.levels_kept,
                f"give a number from 0 to all {CLASSES * self.cohorts} levels",
            )
        if self.widen_at_milli > self.price_max_milli:
            raise BadValue(
                "shed.widen_at_milli",
                self.widen_at_milli,
                f"it must not be above price_max_milli, {self.price_max_milli}",
            )
        if self.dearest == Criticality.CRITICAL:
            raise BadValue("shed.dearest", "CRITICAL", "give a lower class; CRITICAL has no price")
        if len(self.ramps) != CLASSES:
            raise BadValue("shed.ramps", len(self.ramps), f"give one for each of {CLASSES} classes")
        try:
            super().__post_init__()
        except ValueError as wrong:
            raise BadValue("shed.ramps", self.ramps, str(wrong)) from None


class ShedStats(NamedTuple):
    """What passed and what did not, by class, and where the form stands now."""

    form: str
    admitted: tuple[int, ...]
    refused: tuple[int, ...]
    level: int  # levels: what is below is admitted
    levels: int
    prices_milli: tuple[int, ...]
    utilization: float  # with its backlash
    windows: int


@final
class Shed:
    """Judges by class and stress, in one of the three forms."""

    __slots__ = (
        "_admitted",
        "_begin_us",
        "_by_key",
        "_chance",
        "_cohort_of",
        "_cohorts",
        "_due_us",
        "_hour",
        "_hour_end_us",
        "_levels",
        "_levels_form",
        "_prices",
        "_prices_form",
        "_ramps",
        "_refusals",
        "_stress",
        "_window_us",
        "_windows",
        "settings",
    )

    def __init__(
        self, stress: StressSource, chance: Chance, settings: ShedSettings | None = None
    ) -> None:
        settings = ShedSettings() if settings is None else settings
        self.settings = settings
        self._stress = stress
        self._chance = chance
        self._levels_form = settings.form == "levels"
        self._prices_form = settings.form == "prices"
        self._levels = PriorityShed(
            classes=CLASSES,
            cohorts=settings.cohorts,
            cut_permille=settings.cut_permille,
            raise_permille=settings.raise_permille,
            keep_permille=settings.keep_permille,
            levels_kept=settings.levels_kept,
            floor=settings.floor,
        )
        self._prices = PriceLadder(
            settings.widen_at_milli, settings.price_max_milli, settings.dearest
        )
        self._ramps = UtilizationShed(settings)
        self._by_key = settings.spread == "key"
        self._cohorts = settings.cohorts
        self._cohort_of: dict[str, int] = {}
        self._hour = -1
        self._hour_end_us = -1
        self._begin_us = 0
        self._due_us = -1
        self._window_us = settings.price_window_us if self._prices_form else settings.window_us
        self._windows = 0
        self._admitted = [0] * CLASSES
        self._refusals = [0] * CLASSES

    def admit(self, request: Request, now_us: int) -> NothingHeld | Decision:
        """Admit it or not by its class; it holds nothing."""
        if now_us >= self._due_us or now_us < self._begin_us:
            self._end_window(now_us)
        place: int = request.criticality
        if self._levels_form:
            level = place * self._cohorts + self._cohort(request, now_us)
            levels = self._levels
            draw = 0.0 if levels.admits(level) else self._chance.draw()
            if not levels.admit(level, draw):
                self._refusals[place] += 1
                return self._refusal(level)
        elif not self._prices_form:
            ramps = self._ramps
            # Nothing is drawn for a class of which all pass.
            if ramps.refusal_share(place) > 0.0 and not ramps.admits(place, self._chance.draw()):
                self._refusals[place] += 1
                return _refuse(self.settings.retry_after_us)
        self._admitted[place] += 1
        return NOTHING_HELD

    def replace_ramps(self, ramps: RampSettings) -> None:
        """Go by these from the next window on, in the form `utilization`."""
        self._ramps = UtilizationShed(ramps)
        self._due_us = -1

    def price_milli(self, request: Request, now_us: int) -> int:
        """What a request unit costs its class now, in thousandths; 1,000 in the other forms."""
        if now_us >= self._due_us or now_us < self._begin_us:
            self._end_window(now_us)
        return self._prices.milli[request.criticality]

    def stats(self) -> ShedStats:
        """Counts since the start, and where each form stands."""
        return ShedStats(
            self.settings.form,
            tuple(self._admitted),
            tuple(self._refusals),
            self._levels.threshold,
            CLASSES * self._cohorts,
            tuple(self._prices.milli),
            self._ramps.effective,
            self._windows,
        )

    def _end_window(self, now_us: int) -> None:
        """A window is over, or several in which nothing came."""
        window_us = self._window_us
        passed = (now_us - self._begin_us) // window_us if self._windows > 0 else 1
        self._begin_us = now_us
        self._due_us = now_us + window_us
        self._windows += 1
        picture = self._stress.read(now_us)
        quiet = passed - 1
        if quiet > CATCH_UP_MAX:
            quiet = CATCH_UP_MAX
        if self._levels_form:
            for _ in range(quiet):
                self._levels.tick(False)
            hard = picture.level == StressLevel.HARD
            self._levels.tick(picture.crowded, hard)
            # The deeper, the more at once: what is nearly right is approached in small steps.
            for _ in range(min(int(picture.depth), self.settings.cuts_max) - 1):
                self._levels.tick(True, hard)
        elif self._prices_form:
            self._move_prices(picture, quiet)
        else:
            self._ramps.observe(picture.utilization or 0.0)

    def _move_prices(self, picture: StressState, quiet: int) -> None:
        prices, settings = self._prices, self.settings
        lowered = True
        while quiet > 0 and lowered:
            lowered = prices.lower_first(settings.cheaper_milli)
            quiet -= 1
        if picture.slow or picture.crowded:
            hard = picture.level == StressLevel.HARD
            prices.raise_prices(settings.dearer_hard_milli if hard else settings.dearer_milli)
        else:
            prices.lower_first(settings.cheaper_milli)

    def _cohort(self, request: Request, now_us: int) -> int:
        """The cohort of whoever asks; who has no name is spread by key."""
        who = request.caller
        if self._by_key or not who:
            who = request.key
        if now_us >= self._hour_end_us:
            self._hour = now_us // self.settings.rotate_us
            self._hour_end_us = (self._hour + 1) * self.settings.rotate_us
            self._cohort_of.clear()
        number = self._cohort_of.get(who)
        if number is None:
            number = cohort(who, self._hour, self._cohorts)
            if len(self._cohort_of) >= self.settings.callers_max:
                self._cohort_of.clear()
            self._cohort_of[who] = number
        return number

    def _refusal(self, level: int) -> Decision:
        """When the level will have come back to this one, if it rises from now on."""
        settings = self.settings
        above = level + 1 - self._levels.threshold
        each = CLASSES * self._cohorts * settings.raise_permille
        windows = -(-above * PERMILLE // each)
        return _refuse(min(windows * settings.window_us, settings.retry_after_us_max))


def _refuse(retry_after_us: int) -> Decision:
    return Decision(False, 0, retry_after_us, retry_after_us, SHED, RULE_ID)
