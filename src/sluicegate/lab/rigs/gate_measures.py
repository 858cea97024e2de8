"""Gate measures: how well a limit follows the workers, ten seconds after each change."""

from __future__ import annotations

from math import log
from statistics import fmean
from typing import Final

from sluicegate.lab.measures import quantile
from sluicegate.lab.rigs.gates import SAMPLE_US, GateRig, GateRun
from sluicegate.lab.scenario import Curves, Figures

SECOND: Final = 1_000_000
SETTLE_US: Final = 10 * SECOND


def settled(rig: GateRig, run: GateRun) -> list[tuple[int, list[int]]]:
    """Of each phase the workers, and the limits from ten seconds after its beginning."""
    ends = [begin_us for begin_us, _ in rig.workers[1:]] + [rig.span_us]
    return [
        (workers, run.limits[(begin_us + SETTLE_US) // SAMPLE_US : end_us // SAMPLE_US])
        for (begin_us, workers), end_us in zip(rig.workers, ends, strict=True)
    ]


def measure(rig: GateRig, run: GateRun) -> Figures:
    """How far off the limit is once it had time, what calls took, and where it ends up."""
    phases = settled(rig, run)
    off = [abs(limit / workers - 1) for workers, limits in phases for limit in limits]
    took = [us for bucket in run.took_us for us in bucket]
    alone_us = rig.service.mean_us * log(100)
    done = sum(run.answered[SECOND // SAMPLE_US :])
    possible = sum(
        rig.workers_at(at * SAMPLE_US) * SAMPLE_US / rig.service.mean_us
        for at in range(SECOND // SAMPLE_US, len(run.limits))
    )
    means = [(workers, fmean(limits)) for workers, limits in phases]
    third = max(len(means) // 6, 1) * 2  # phases of the first and of the last third
    return {
        "off_max": max(off),
        "p99_growth": quantile(took, 0.99) / alone_us - 1,
        "drift": max(
            abs(_mean_at(means[-third:], count) / _mean_at(means[:third], count) - 1)
            for count in {workers for workers, _ in means}
        ),
        "goodput": done / possible,
        "goodput_3s": sum(run.answered[10:30])
        / (2 * rig.workers[0][1] / rig.service.mean_us * SECOND),
    }


def _mean_at(means: list[tuple[int, float]], workers: int) -> float:
    return fmean(mean for count, mean in means if count == workers)


def curves(rig: GateRig, run: GateRun) -> Curves:
    """The limit over time, beside the workers."""
    step = max(len(run.limits) // 400, 1)
    samples = range(0, len(run.limits), step)
    return {
        "limit": [(at * SAMPLE_US / SECOND, float(run.limits[at])) for at in samples],
        "workers": [
            (at * SAMPLE_US / SECOND, float(rig.workers_at(at * SAMPLE_US))) for at in samples
        ],
    }
