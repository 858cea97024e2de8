"""Calibration: from measured costs of operations to weights. Nothing is measured here.

A sample is one shape of one operation (so many rows, so many bytes) and what doing it took, in
microseconds of CPU. For each operation the model is the one that charges (`kernels/cost_model.py`),

    cost = base + row * rows + byte * bytes

fitted by least squares of the *relative* error, or the largest shape would decide alone, with no
negative weight: of all ways to leave some weights out, the one with the least error whose others
are not negative. The base includes what the dispatcher itself spends on any request
(`benchmarks/dispatcher.py`). The unit is a get of one row of no bytes.

A millisecond of an operation costs what holding one of the engine's places for so long keeps from
others: its part of what all places could do meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from sluicegate.apps.kv.chain import GET
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.cost_model import Weights

PLACES_DEFAULT: Final = 64
OVERHEAD_US_DEFAULT: Final = 25.0
BASE_US_MIN: Final = 0.01
_MS_US: Final = 1_000.0


class CostSample(NamedTuple):
    """One shape of an operation, and what one of it took."""

    operation: str
    rows: int
    size_bytes: int
    cost_us: float


class CostFit(NamedTuple):
    """An operation's model in microseconds, and how far its worst sample is from it."""

    base_us: float
    row_us: float
    byte_us: float
    error_max: float  # as a part of the sample

    def cost_us(self, rows: int, size_bytes: int) -> float:
        """Return the model's cost of a shape."""
        return self.base_us + self.row_us * rows + self.byte_us * size_bytes


class Calibration(NamedTuple):
    """The weights, what one RU is, and how well the model ranks what was measured."""

    weights: Mapping[str, Weights]
    fits: Mapping[str, CostFit]
    unit_us: float
    rank: float  # Spearman's, between measured and charged, over all samples


def calibrate_costs(
    samples: Sequence[CostSample],
    places: int = PLACES_DEFAULT,
    overhead_us: float = OVERHEAD_US_DEFAULT,
) -> Calibration:
    """Weights for every operation that was sampled; a get must be among them."""
    by_operation: dict[str, list[CostSample]] = {}
    for sample in samples:
        by_operation.setdefault(sample.operation, []).append(sample)
    if GET not in by_operation:
        raise BadValue("samples", sorted(by_operation), f"measure {GET} too: it is the unit")
    fits = {name: fit_costs(some) for name, some in by_operation.items()}
    unit_us = fits[GET].cost_us(1, 0) + overhead_us
    ms_ru = _MS_US / unit_us / places
    weights = {
        name: Weights(
            (fit.base_us + overhead_us) / unit_us,
            fit.row_us / unit_us,
            fit.byte_us / unit_us,
            ms_ru,
        )
        for name, fit in fits.items()
    }
    charged = [fits[one.operation].cost_us(one.rows, one.size_bytes) for one in samples]
    rank = spearman([one.cost_us for one in samples], charged)
    return Calibration(weights, fits, unit_us, rank)


def fit_costs(samples: Sequence[CostSample]) -> CostFit:
    """The model of one operation."""
    rows = [
        [1.0 / one.cost_us, one.rows / one.cost_us, one.size_bytes / one.cost_us] for one in samples
    ]
    best: list[float] = [max(BASE_US_MIN, min(one.cost_us for one in samples)), 0.0, 0.0]
    least = _error(rows, best)
    for used in product((False, True), repeat=3):
        solution = _solve(rows, used)
        if solution is None or min(solution) < 0 or solution[0] < BASE_US_MIN:
            continue
        error = _error(rows, solution)
        if error < least:
            best, least = solution, error
    worst = max(abs(sum(_times(row, best)) - 1.0) for row in rows)
    return CostFit(best[0], best[1], best[2], worst)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """How alike two rankings are, from -1 to 1."""
    a, b = _ranks(first), _ranks(second)
    mean = (len(a) - 1) / 2
    above = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    below = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return 1.0 if below <= 0 else above / below**0.5


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in order; equals share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for at in order[first : last + 1]:
            ranks[at] = (first + last) / 2
        first = last + 1
    return ranks


def _times(row: Sequence[float], weights: Sequence[float]) -> list[float]:
    return [a * b for a, b in zip(row, weights, strict=True)]


def _error(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    return sum((sum(_times(row, weights)) - 1.0) ** 2 for row in rows)


def _solve(rows: Sequence[Sequence[float]], used: Sequence[bool]) -> list[float] | None:
    """Least squares over some of the weights, the others 0; None if they cannot be told apart."""
    at = [place for place, one in enumerate(used) if one]
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in at] + [sum(row[i] for row in rows)]
        for i in at
    ]
    size = len(at)
    for column in range(size):
        pivot = max(range(column, size), key=lambda line: abs(matrix[line][column]))
        if abs(matrix[pivot][column]) < 1e-18:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        for line in range(size):
            if line != column:
                factor = matrix[line][column] / matrix[column][column]
                matrix[line] = [
                    a - factor * b for a, b in zip(matrix[line], matrix[column], strict=True)
                ]
    weights = [0.0, 0.0, 0.0]
    for line, place in enumerate(at):
        weights[place] = matrix[line][size] / matrix[line][line]
    return weights
