"""Measures: figures computed from a ledger; one function each, and a table of all by name.

Goodput is work, not answers: the share of what the workers could have done, after the warm-up, that
was answered in time. So a seed that drew long service times is no worse than one that drew short.
A figure without data meets no goal: a p99 of nothing is infinite, a share of nothing is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf
from statistics import fmean
from typing import Final

from sluicegate.lab.ledger import BUCKET_US, RunLedger
from sluicegate.lab.rig import Rig
from sluicegate.lab.scenario import Curves, Figures

RECOVERED_SHARE: Final = 0.95
WINDOW_BUCKETS: Final = 10  # a second


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not pass (nearest rank); infinite if there are none."""
    if not values:
        return inf
    return sorted(values)[max(ceil(share * len(values)) - 1, 0)]


def jain(values: Sequence[float]) -> float:
    """Jain's fairness: 1 if all have the same, 1/n if one has it all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def capacity_us(rig: Rig, begin_us: int, end_us: int) -> float:
    """Work that all workers together can do between the two instants."""
    return rig.workers * rig.speed_profile.work_us(begin_us, end_us)


def goodput(rig: Rig, ledger: RunLedger) -> float:
    """Work answered in time, as a share of capacity."""
    return ledger.useful_us / capacity_us(rig, rig.warm_us, rig.span_us)


def wasted(rig: Rig, ledger: RunLedger) -> float:
    """Work answered too late, as a share of capacity."""
    return ledger.wasted_us / capacity_us(rig, rig.warm_us, rig.span_us)


def good_quantile_ms(ledger: RunLedger, share: float) -> float:
    """A quantile of the time from arrival to an answer in time."""
    return quantile([us for row in ledger.by_kind for us in row.good_us], share) / 1000


def refused_p99_ms(ledger: RunLedger) -> float:
    """How long all but one in a hundred of the refused waited for it; 0 if nobody was refused."""
    waits = [us for row in ledger.by_kind for us in row.refused_us]
    return quantile(waits, 0.99) / 1000 if waits else 0.0


def success(ledger: RunLedger, kind: int) -> float:
    """Of the attempts of a kind that have ended, those that were answered in time."""
    row = ledger.by_kind[kind]
    ended = row.good + row.late + row.refused
    return row.good / ended if ended else 0.0


def amplification(ledger: RunLedger) -> float:
    """Attempts for each call."""
    return (ledger.started + ledger.retries) / ledger.started if ledger.started else inf


def recovery_s(ledger: RunLedger, hurt_us: int, restored_us: int) -> float:
    """From `restored_us` until answers come, for a second, at 95% of the rate before `hurt_us`."""
    before = ledger.good_at[ledger.warm_us // BUCKET_US : hurt_us // BUCKET_US]
    enough = RECOVERED_SHARE * fmean(before) * WINDOW_BUCKETS
    first = -(-restored_us // BUCKET_US)
    for begin in range(first, ledger.span_us // BUCKET_US - WINDOW_BUCKETS + 1):
        if sum(ledger.good_at[begin : begin + WINDOW_BUCKETS]) >= enough:
            return (begin - first) * BUCKET_US / 1e6
    return inf


TABLE: Final[Mapping[str, Callable[[Rig, RunLedger], float]]] = {
    "goodput": goodput,
    "p50_ms": lambda _, ledger: good_quantile_ms(ledger, 0.50),
    "p99_ms": lambda _, ledger: good_quantile_ms(ledger, 0.99),
    "refused_p99_ms": lambda _, ledger: refused_p99_ms(ledger),
    "queue_peak": lambda _, ledger: float(ledger.queue_peak),
    "wasted": wasted,
    "amplification": lambda _, ledger: amplification(ledger),
    "jain": lambda _, ledger: jain([n for row in ledger.by_kind for n in row.callers]),
}


def figures(rig: Rig, ledger: RunLedger) -> Figures:
    """All of the table, and the success of each kind."""
    found = {name: measure(rig, ledger) for name, measure in TABLE.items()}
    for number, kind in enumerate(rig.kinds):
        found[f"success.{kind.name}"] = success(ledger, number)
    return found


def curves(rig: Rig, ledger: RunLedger) -> Curves:
    """What a run did over time, in seconds: a point for each tenth of one."""
    per_s = 1_000_000 / BUCKET_US
    values = {
        "offered_per_s": [count * per_s for count in ledger.offered_at],
        "good_per_s": [count * per_s for count in ledger.good_at],
        "goodput": [us / (rig.workers * BUCKET_US) for us in ledger.useful_us_at],
        "p99_ms": [quantile(us, 0.99) / 1000 if us else 0.0 for us in ledger.good_us_at],
    }
    return timeline(values, BUCKET_US, ledger.span_us)


def timeline(series: Mapping[str, Sequence[float]], bucket_us: int, end_us: int) -> Curves:
    """Return values counted in buckets as curves over seconds, as far as buckets are whole."""
    per_s = 1_000_000 / bucket_us
    whole = end_us // bucket_us
    return {
        name: [(at / per_s, value) for at, value in enumerate(values[:whole])]
        for name, values in series.items()
    }
