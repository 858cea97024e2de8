"""Weights: what operations cost, from a file that `sluicegate kv calibrate` prints.

    version = 1

    [get]
    base_ru = 1.0
    row_ru = 0.1
    byte_ru = 0.00024
    ms_ru = 0.1

An operation that is not named has its default. Learning while serving starts from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from sluicegate.apps.kv.chain import OPERATIONS, default_weights
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.cost_model import Weights
from sluicegate.service.toml_file import read_toml

VERSION: Final = 1
FILE_BYTES_MAX: Final = 100_000
FIELDS: Final = ("base_ru", "row_ru", "byte_ru", "ms_ru")
WEIGHT_MAX: Final = 1e9


def read_weights_file(path: str) -> dict[str, Weights]:
    """The weights of every operation; without a file the defaults."""
    weights = default_weights()
    if not path:
        return weights
    document = read_toml("--weights", path, FILE_BYTES_MAX)
    version = document.pop("version", None)
    if version != VERSION:
        raise BadValue(f"{path}: version", version, f"write version = {VERSION}")
    for name, table in document.items():
        if name not in OPERATIONS:
            raise BadValue(f"{path}: {name}", table, f"name one of {', '.join(OPERATIONS)}")
        weights[name] = _weights(table, f"{path}: {name}")
    return weights


def weights_text(weights: Mapping[str, Weights], comments: Mapping[str, str] | None = None) -> str:
    """Return the text of a weights file."""
    lines = [f"version = {VERSION}"]
    for name, one in weights.items():
        comment = "" if comments is None else comments.get(name, "")
        lines += ["", f"[{name}]{f'  # {comment}' if comment else ''}"]
        lines += [
            f"{field} = {value:.6g}" for field, value in zip(FIELDS, _values(one), strict=True)
        ]
    return "\n".join([*lines, ""])


def _values(one: Weights) -> tuple[float, float, float, float]:
    return one.base_ru, one.row_ru, one.byte_ru, one.ms_ru


def _weights(table: Any, where: str) -> Weights:
    if not isinstance(table, dict) or set(table) != set(FIELDS):
        raise BadValue(where, table, f"give {', '.join(FIELDS)}, and nothing else")
    values: list[float] = []
    for field in FIELDS:
        value = table[field]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not 0 <= value <= WEIGHT_MAX:
            raise BadValue(f"{where}.{field}", value, f"give 0 to {WEIGHT_MAX:,.0f}")
        values.append(float(value))
    try:
        return Weights(*values)
    except ValueError as error:
        raise BadValue(where, table, str(error)) from None
