"""Confidence intervals of means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Final, NamedTuple

# Student's t: one run in a hundred lies outside, or one in twenty; by degrees of freedom.
_T_99: Final = (
    63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
    3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
    2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_T_95: Final = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Interval(NamedTuple):
    """A mean over seeds, and the bounds of the true one."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float], *, level: int = 99) -> Interval:
    """The confidence interval of the mean of independent runs; `level` is 95 or 99."""
    if len(values) < 2:
        raise ValueError("an interval takes two runs at least")
    table = {95: _T_95, 99: _T_99}[level]
    mean = fmean(values)
    half = table[min(len(values) - 1, len(table)) - 1] * stdev(values) / sqrt(len(values))
    return Interval(mean, mean - half, mean + half)
