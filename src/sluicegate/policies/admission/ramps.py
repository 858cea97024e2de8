"""Ramps by name: which class is shed from which utilization, as operators write it.

one-by-one    BULK, then BEST_EFFORT, then DEGRADED (`kernels/utilization_shed`)
together      BULK and BEST_EFFORT alike, nobody else
DEGRADED:0.8-0.95,BEST_EFFORT:0.7-0.8,BULK:0.6-0.7    each class that is shed, from where to where
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.utilization_shed import (
    DEFAULT_RAMPS,
    TOGETHER_RAMPS,
    Ramp,
    RampSettings,
)

ONE_BY_ONE: Final = "one-by-one"
TOGETHER: Final = "together"
FROM_DEFAULT: Final = 0.6
NEVER: Final = 1.0
_REMEDY: Final = (
    f"give {ONE_BY_ONE}, {TOGETHER}, or each class that is shed, from where to where, as "
    "BEST_EFFORT:0.7-0.8,BULK:0.6-0.7"
)
Ramps = tuple[Ramp | None, ...]


def read_ramps(
    text: str, *, field: str, begin: float = FROM_DEFAULT, critical_from: float = NEVER
) -> Ramps:
    """Return the ramps of that name, the most important class first, or those that are written.

    `begin` is where the first of a named form begins, `critical_from` where CRITICAL does (1:
    never). Those that are written say both themselves.
    """
    if text not in (ONE_BY_ONE, TOGETHER):
        return _written(text, field)
    ramps = list(DEFAULT_RAMPS if text == ONE_BY_ONE else TOGETHER_RAMPS)
    lowest = ramps[Criticality.BULK]
    assert lowest is not None
    first = Ramp(min(begin, lowest.full), lowest.full)
    ramps = [first if ramp == lowest else ramp for ramp in ramps]
    if critical_from < NEVER:
        ramps[Criticality.CRITICAL] = Ramp(critical_from, 1.0)
        degraded = ramps[Criticality.DEGRADED] or DEFAULT_RAMPS[Criticality.DEGRADED]
        assert degraded is not None
        ramps[Criticality.DEGRADED] = Ramp(
            min(degraded.begin, critical_from), min(degraded.full, critical_from)
        )
    return tuple(ramps)


def _written(text: str, field: str) -> Ramps:
    ramps: list[Ramp | None] = [None] * len(Criticality)
    for part in text.split(","):
        name, _, span = part.strip().partition(":")
        begin, mark, full = span.partition("-")
        try:
            member = Criticality[name.strip().upper().replace("-", "_")]
            ramp = Ramp(float(begin), float(full))
        except (KeyError, ValueError):
            raise BadValue(field, text, _REMEDY) from None
        if not mark or ramps[member] is not None:
            raise BadValue(field, text, _REMEDY)
        ramps[member] = ramp
    try:
        RampSettings(ramps=tuple(ramps))
    except ValueError as error:
        remedy = str(error)
        for member in Criticality:
            remedy = remedy.replace(f"ramps[{member.value}]", f"a ramp of {member.name}")
        raise BadValue(field, text, remedy) from None
    return tuple(ramps)
