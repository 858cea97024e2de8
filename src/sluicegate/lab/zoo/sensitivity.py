"""Sensitivity: the zoo once more with each tuned constant halved, and doubled.

The constants are those of `sluicegate.policies.admission.constants.TUNED`, or a list that is given:
each has a `name`, a `module`, an `attribute` and a `why`. Only the product is played again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

from sluicegate.command_line.text import table
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.zoo.bars import judge, judge_all
from sluicegate.lab.zoo.play import PRODUCT, ConstantChange, Outcomes, Play, key_of

CONSTANTS: Final = "sluicegate.policies.admission.constants"
FACTORS: Final = (0.5, 2.0)


class Tuned(Protocol):
    """A tuned constant."""

    @property
    def name(self) -> str:
        """The name in the table."""
        ...

    @property
    def module(self) -> str:
        """The module that holds it."""
        ...

    @property
    def attribute(self) -> str:
        """Its name there."""
        ...


class SensitivityRow(NamedTuple):
    """One constant at another value: the bars that it loses, and whether anything changed."""

    name: str
    before: Any
    value: Any
    changed: int  # shapes in which the product did something else
    lost: tuple[str, ...]


def registered() -> Sequence[Tuned]:
    """Return the tuned constants of the default path."""
    if find_spec(CONSTANTS.rpartition(".")[0]) is None or find_spec(CONSTANTS) is None:
        raise BadValue("--sensitivity", CONSTANTS, "register the tuned constants in its list TUNED")
    found: Sequence[Tuned] = import_module(CONSTANTS).TUNED
    return found


def compare(
    plays: Sequence[Play],
    played: Sequence[Outcomes],
    play_all: Callable[[Sequence[Play]], list[Outcomes]],
    constants: Sequence[Tuned],
) -> list[SensitivityRow]:
    """Play again with each constant halved and doubled, and return the bars that this loses."""
    before = _missed(plays, played)
    rows = []
    for one in constants:
        module = import_module(one.module)
        if (module.__file__ or "").endswith((".so", ".pyd")):
            raise BadValue(
                "--sensitivity", one.module, "run it interpreted: constants are compiled"
            )
        value = getattr(module, one.attribute)
        for other in dict.fromkeys(_scaled(value, factor) for factor in FACTORS):
            if other == value:
                continue
            change = ConstantChange(one.module, one.attribute, other)
            again = [play._replace(candidates=_product(play), change=change) for play in plays]
            found = play_all(again)
            merged = [{**old, **new} for old, new in zip(played, found, strict=True)]
            changed = sum(
                any(new[name] != old[name] for name in new)
                for old, new in zip(played, found, strict=True)
            )
            lost = sorted(_missed(plays, merged) - before)
            rows.append(SensitivityRow(one.name, value, other, changed, tuple(lost)))
    return rows


def lines(rows: Sequence[SensitivityRow]) -> list[str]:
    """Return the table."""
    body = [
        (
            row.name,
            f"{row.before}",
            f"{row.value}",
            f"{row.changed}",
            "; ".join(row.lost) or ("none" if row.changed else "none: it changes nothing"),
        )
        for row in rows
    ]
    return ["", *table(("constant", "value", "tried", "shapes changed", "bars lost"), body)]


def _missed(plays: Sequence[Play], played: Sequence[Outcomes]) -> set[str]:
    judged = [row for play, one in zip(plays, played, strict=True)
              for row in judge(play.shape, one)]  # fmt: skip
    missed = {
        f"{key_of(row.shape)} ({row.mode}): {one.bar}" for row in judged for one in row.missed()
    }
    over_all = [one for one in judge_all(judged) if not one.where and not one.met]
    return missed | {f"{one.name} ({one.mode})" for one in over_all}


def _product(play: Play) -> tuple[str, ...]:
    return tuple(name for name in play.candidates if name in PRODUCT)


def _scaled(value: Any, factor: float) -> Any:
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor
