"""Invariants: what must hold of every record, one a function; each says what broke, or nothing.

Where chance has a part a tolerance is stated, and why it is that much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import Final, TypeAlias

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, QUEUE_TIMEOUT, SHED
from sluicegate.lab.hunt.record import CANCELLED, NEVER_US, REFUSED, HuntRecord, HuntUnit, Violation
from sluicegate.lab.hunt.setup import Setup

Invariant: TypeAlias = Callable[[Setup, HuntRecord], str | None]

# The shedder's own, with its default settings.
WINDOW_US: Final = 200_000
# The floors let 1% of BULK pass in the shedder and 1% in the queue; twice that is no accident.
BULK_SHARE_MAX: Final = 0.05
FEW: Final = 10
# A sweep every 5 ms refuses waiters, and the instant of the sweep may be a sweep late.
REFUSED_LATE_US_MAX: Final = 11_000
# Of the mean. Half of it up, down, up and down again is what a person calls swinging.
SWING: Final = 0.5
SWINGS_MAX: Final = 3
CHANCE_SIGMAS: Final = 6.0
_NO_PLACE: Final = frozenset(reason.name for reason in (QUEUE_FULL, QUEUE_TIMEOUT))


def bounded(setup: Setup, record: HuntRecord) -> str | None:
    """No level passes its bound: at work, in a part, in a line, in bytes, in a table."""
    for name, bound in record.bounds.items():
        peak = record.peaks.get(name, 0)
        if peak > bound:
            return f"{name} reached {peak:,}, and its bound is {bound:,}"
    return None


def not_over_admitted(setup: Setup, record: HuntRecord) -> str | None:
    """In no span is more spent than the rate of it and what may be spent at once."""
    for name, spent in record.spent.items():
        limit = record.limits.get(name)
        if limit is None:
            continue
        excess, last_us = 0.0, 0
        for at_us, amount in spent:
            excess = max(excess - limit.per_s * (at_us - last_us) / 1e6, 0.0) + amount
            last_us = at_us
            if excess > limit.burst * (1 + 1e-9) + 1e-6:
                return (
                    f"{name} spent {excess:,.0f} above its rate of {limit.per_s:,.0f} a second by "
                    f"{at_us:,} us, and {limit.burst:,.0f} may be spent at once"
                )
            excess = max(excess, 0.0)
    return None


def nothing_left(setup: Setup, record: HuntRecord) -> str | None:
    """When all has ended every count is back at zero: no permit, waiter or future is lost."""
    for name, left in record.left.items():
        if left != 0:
            return f"{name} is {left:,} when all has ended"
    return None


def in_time(setup: Setup, record: HuntRecord) -> str | None:
    """Nothing is begun after its deadline, and waiters get an answer or a refusal by then."""
    for unit in record.units:
        deadline_us = unit.deadline_us
        if deadline_us is None:
            continue
        if unit.begun_us > deadline_us:
            return f"work was begun {unit.begun_us - deadline_us:,} us after its deadline"
        late_us = unit.waited_us - max(deadline_us - unit.arrived_us, 0)
        if unit.status != CANCELLED and late_us > REFUSED_LATE_US_MAX:
            return f"a caller heard {unit.reason or unit.status} {late_us:,} us after its deadline"
    return None


def critical_waits_for_nobody_less(setup: Setup, record: HuntRecord) -> str | None:
    """While a CRITICAL unit waits in vain no BULK is begun, but for the queue's floor."""
    begun = sorted(unit.begun_us for unit in record.units if unit.begun_us != NEVER_US)
    bulk = sorted(
        unit.begun_us
        for unit in record.units
        if unit.begun_us != NEVER_US and unit.criticality is Criticality.BULK
    )
    for unit in record.units:
        if unit.criticality is not Criticality.CRITICAL or not _waited_in_vain(unit):
            continue
        # Two: one whose place was given before it came, and one by the floor.
        overtook = _between(bulk, unit.arrived_us, unit.ended_us)
        among = _between(begun, unit.arrived_us, unit.ended_us)
        if overtook > 2 + BULK_SHARE_MAX * among:
            return (
                f"a CRITICAL unit waited {unit.ended_us - unit.arrived_us:,} us for {unit.reason} "
                f"while {overtook} of {among} that were begun were BULK"
            )
    return None


def critical_goes_last(setup: Setup, record: HuntRecord) -> str | None:
    """Between two CRITICAL units that are shed within one window no BULK passes the shedder.

    Its level moves once a window at most, and all of BULK stands above all of CRITICAL: so whatever
    the level was when BULK passed, one of the two would have passed it too. Only the floor may let
    BULK pass.
    """
    shed = [unit for unit in record.units if unit.reason == SHED.name]
    critical = sorted(one.arrived_us for one in shed if one.criticality is Criticality.CRITICAL)
    sandwiches = [(low, high) for low, high in pairwise(critical) if high - low < WINDOW_US]
    if not sandwiches:
        return None
    begins = [low for low, _ in sandwiches]
    arrivals = admitted = 0
    for unit in record.units:
        at = bisect_right(begins, unit.arrived_us - 1) - 1
        if unit.criticality is not Criticality.BULK or at < 0:
            continue
        if unit.arrived_us < sandwiches[at][1] and unit.reason != DEADLINE.name:
            arrivals += 1
            admitted += unit.begun_us != NEVER_US
    if admitted > FEW and admitted > BULK_SHARE_MAX * arrivals:
        return (
            f"{admitted} of {arrivals} BULK units were admitted"
            " between CRITICAL ones that were shed"
        )
    return None


def steady(setup: Setup, record: HuntRecord) -> str | None:
    """While nothing changes outside, what passes does not swing.

    Measured on what passes in half a second, not on a controller's own number: that may probe as it
    likes as long as nobody can tell. A swing is half of the mean, and what chance explains on top.
    """
    if record.settled is None or not record.step_us:
        return None
    begin_us, end_us = record.settled
    for name, course in record.courses.items():
        values = [value for at_us, value in course if begin_us <= at_us <= end_us]
        if len(values) < FEW:
            continue
        mean = sum(values) / len(values)
        swing = SWING * mean + CHANCE_SIGMAS * sqrt(mean)
        swings = count_swings(values, swing)
        if swings > SWINGS_MAX:
            return (
                f"{name} swung {swings} times by more than {swing:,.0f} around {mean:,.0f}, "
                f"between {min(values):,} and {max(values):,}, while nothing changed"
            )
    return None


TABLE: Final[Mapping[str, Invariant]] = {
    "bounded": bounded,
    "not over-admitted": not_over_admitted,
    "nothing left": nothing_left,
    "in time": in_time,
    "critical waits for nobody less": critical_waits_for_nobody_less,
    "critical goes last": critical_goes_last,
    "steady": steady,
}
# Recorded by the stages themselves, as it happens.
RECORDED: Final[Mapping[str, str]] = {
    "the run ends": "no task stands still, goes in circles or is left behind",
    "no error": "no policy raises anything but what it says it raises",
    "conserved": "arrived = admitted + refused + waiting + given up, and all counts agree, always",
    "no idle hands": "nobody waits while a place is free",
    "ends once": "a permit that has ended does not end again",
    "not in vain": "hardly any work ends after its deadline, if there was time enough for it",
    "refused for a reason": "a part that is not full refuses nobody",
    "known as slow": "what is slow is not taken for healthy while it lasts",
    "healthy shards serve": "no class is refused on a shard that is healthy and uncrowded",
    "every class has samples": "some of each class reach the engine, however much there is to do",
    "clamped": "nobody is admitted as more than the table says",
    "who reads pays": "work is charged by what it looked at, and what was never begun is not",
    "own reads": "no read is older than the last write that was acknowledged here before it began",
    "nobody's end is another's": "who was not cancelled hears of no cancellation",
    "one fetch": "one key is fetched once at a time, unless it was written or the first is overdue",
    "let go": "what has cooled is not held hot, and what has calmed is not held shut",
    "on evidence": "a breaker opens on failures, and on nothing else",
    "done once": "what is not idempotent is not begun twice",
    "no growth at rest": "a limit does not rise while less than half of it is used",
    "conforming": "who conforms to the limit is not suppressed",
    "held": "who does not is held to the limit, and to no less",
}


def check(setup: Setup, record: HuntRecord) -> list[Violation]:
    """All that the play broke."""
    broken = list(record.violations)
    for name, invariant in TABLE.items():
        sentence = invariant(setup, record)
        if sentence is not None:
            broken.append(Violation(name, sentence))
    first: dict[str, Violation] = {}
    for one in broken:
        first.setdefault(one.invariant, one)
    return list(first.values())


def count_swings(values: Sequence[int], swing: float) -> int:
    """How often they turn round after having moved by more than `swing`."""
    swings, low, high, rising = 0, values[0], values[0], 0
    for value in values:
        low, high = min(low, value), max(high, value)
        if rising <= 0 and value - low > swing:
            swings, rising, high = swings + 1, 1, value
        elif rising >= 0 and high - value > swing:
            swings, rising, low = swings + 1, -1, value
    return swings


def _waited_in_vain(unit: HuntUnit) -> bool:
    return unit.status == REFUSED and unit.ended_us > unit.arrived_us and unit.reason in _NO_PLACE


def _between(instants: list[int], begin_us: int, end_us: int) -> int:
    return bisect_right(instants, end_us) - bisect_right(instants, begin_us)
