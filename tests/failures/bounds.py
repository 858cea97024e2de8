"""Bounds: the most that may be admitted, worked out from the limit alone. This folder's oracle.

Nothing here knows how anything is counted by us. What an honest limit admits between two instants,
and how often a store may have begun anew, is all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sluicegate import Algorithm, Limit
from sluicegate.contracts.rule import BURSTING


class Admission(NamedTuple):
    """One unit that was admitted, some time between these two instants."""

    sent_us: int
    answered_us: int


def admitted_max(limit: Limit, began_us: int, ended_us: int, *, losses: int = 0) -> int:
    """What one key may be admitted from `began_us` to `ended_us` if its state was lost so often.

    A loss gives a bucket its burst again, and a window its count.
    """
    if limit.algorithm in BURSTING:
        flows_in = (ended_us - began_us) * limit.count // limit.period_us
        return limit.burst * (1 + losses) + flows_in
    if limit.algorithm is Algorithm.FIXED_WINDOW:
        windows = ended_us // limit.period_us - began_us // limit.period_us + 1
    else:
        windows = (ended_us - began_us) // limit.period_us + 1
    return limit.count * (windows + losses)


def shared_max(limit: Limit, share: float, began_us: int, ended_us: int, *, processes: int) -> int:
    """What one key may be admitted by the processes themselves, each against its share."""
    count, burst = max(1, int(limit.count * share)), max(1, int(limit.burst * share))
    part = Limit(
        count,
        period_us=limit.period_us,
        burst=burst if limit.algorithm in BURSTING else None,
        algorithm=limit.algorithm,
    )
    return processes * admitted_max(part, began_us, ended_us)


def over_window(limit: Limit, admissions: Sequence[Admission]) -> int:
    """By how much the fullest fixed window is surely over the limit; 0 if none is."""
    used: dict[int, int] = {}
    for sent_us, answered_us in admissions:
        window = sent_us // limit.period_us
        if answered_us // limit.period_us == window:  # else it may belong to either
            used[window] = used.get(window, 0) + 1
    return max(0, max(used.values(), default=0) - limit.count)


def over_bucket(limit: Limit, admissions: Sequence[Admission]) -> int:
    """By how much the fullest span is surely over burst and rate; 0 if none is.

    Between a and b as many were admitted as were answered by b, less those that were sent before a;
    at least. Both are read off two sorted rows, so that one pass finds the worst a for each b.
    """
    sent = sorted(one.sent_us for one in admissions)
    answered = sorted(one.answered_us for one in admissions)
    period_us, count = limit.period_us, limit.count
    worst, least, begun = 0, 0, 0
    for done, b_us in enumerate(answered, 1):
        while begun < len(sent) and sent[begun] <= b_us:
            before = period_us * begun - count * sent[begun]
            least = before if begun == 0 else min(least, before)
            begun += 1
        worst = max(worst, period_us * done - count * b_us - least)
    return max(0, -(-(worst - period_us * limit.burst) // period_us))


def over_span(limit: Limit, admissions: Sequence[Admission]) -> int:
    """By how much the fullest span of one period is surely over the limit; 0 if none is."""
    sent = sorted(one.sent_us for one in admissions)
    answered = sorted(one.answered_us for one in admissions)
    worst = first = 0
    for done, b_us in enumerate(answered, 1):
        # A unit taken at t counts in [t, t + period).
        while first < len(sent) and sent[first] <= b_us - limit.period_us:
            first += 1
        worst = max(worst, done - first)
    return max(0, worst - limit.count)
