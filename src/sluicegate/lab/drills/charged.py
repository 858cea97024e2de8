"""Charged: what callers of a drill were served by the formula, beside what a dispatcher took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.apps.kv.chain import GET, default_weights
from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher
from sluicegate.lab.drills.load import LoadStream
from sluicegate.lab.drills.record import LoadRecord, slice_of

WORK_TIMEOUT_US: Final = 2_000_000


class ChargedWork(NamedTuple):
    """One shape that a caller asks for: its commands, how often, and what each reads."""

    caller: DrillCaller
    name: str
    commands: tuple[bytes, ...]
    arrivals: Arrivals
    rows: int
    size_bytes: int
    service_ms: float = 0.0

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return f"{self.caller.name}: {self.name}"

    @property
    def cost_ru(self) -> float:
        """By the formula and the weights that a dispatcher begins with; all reads have the same."""
        weights = default_weights()[GET]
        ru = weights.base_ru + weights.row_ru * self.rows + weights.byte_ru * self.size_bytes
        return ru + weights.ms_ru * self.service_ms


def streams_of(works: Sequence[ChargedWork], port: int, connections: int) -> tuple[LoadStream, ...]:
    """Return a stream of each."""
    return tuple(
        LoadStream(
            name=work.stream,
            ports=(port,),
            commands=work.commands,
            arrivals=work.arrivals,
            timeout_us=WORK_TIMEOUT_US,
            greeting=work.caller.greeting,
            connections=connections,
        )
        for work in works
    )


def used_ru(
    works: Sequence[ChargedWork], record: LoadRecord, begin_us: int, end_us: int
) -> dict[str, float]:
    """Return what each caller was served in that time, by the formula."""
    used: dict[str, float] = {}
    for work in works:
        served = slice_of(record, work.stream, begin_us=begin_us, end_us=end_us).served
        used[work.caller.name] = used.get(work.caller.name, 0.0) + served * work.cost_ru
    return used


def charged_ru(dispatcher: DrillDispatcher) -> Mapping[str, float]:
    """Return what the dispatcher has charged each caller since it began."""
    callers = dispatcher.state()["board"]["callers"]
    return {one["caller"]: one["mru"] / 1_000 for one in callers}
