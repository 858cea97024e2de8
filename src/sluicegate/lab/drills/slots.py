"""Slots: an engine whose capacity is known, because it has so many slots and work takes so long.

`SLOTS` x `WORK_MS` is `CAPACITY_PER_S`. It is a memory engine behind the fault-injecting one, which
reckons in absolute time: it does that many, whatever the timers of the machine do. So ten times of
what it can do can be offered on a small machine, and what a drill sees is the dispatcher's doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher
from sluicegate.lab.drills.load import LoadStream
from sluicegate.wire.resp import command

SLOTS: Final = 8
WORK_MS: Final = 10
CAPACITY_PER_S: Final = SLOTS * 1_000 // WORK_MS
TIMEOUT_US: Final = 500_000
# For callers that ask as fast as they can, whatever they need.
NO_QUOTA: Final = ("--quota-ru", "1000000000")
QUOTA_TIMES: Final = 1.5  # what a caller may spend, of what it needs
KEYS: Final = 200
_BATCH: Final = 100


def engine(**options: object) -> str:
    """Return its URL, with further options."""
    values: dict[str, object] = {"slots": SLOTS, "work_ms": WORK_MS, **options}
    return "faulty+memory:?" + "&".join(f"{name}={value}" for name, value in values.items())


# What a drill sets of a dispatcher: how long its callers wait, and that no read is left to memory.
FLAGS: Final = ("--deadline-ms", str(TIMEOUT_US // 1_000), "--hot", "off")


def quota_ru(reads_per_s: float, work_ms: float = WORK_MS) -> int:
    """Return a quota for so many reads a second, by the weights a dispatcher begins with."""
    return ceil(QUOTA_TIMES * reads_per_s * (1.125 + 0.1 * work_ms))


def keys(table: str, count: int = KEYS) -> list[str]:
    """Return names of rows: a table, a partition each."""
    return [f"{table}:k{number}" for number in range(count)]


def fill(dispatcher: DrillDispatcher, names: Sequence[str], value: bytes = b"v" * 100) -> None:
    """Put a value at each of these."""
    commands = []
    for begin in range(0, len(names), _BATCH):
        pairs: list[str | bytes] = []
        for name in names[begin : begin + _BATCH]:
            pairs += [name, value]
        commands.append(command("MSET", *pairs))
    dispatcher.execute(commands)


def reads(
    caller: DrillCaller, port: int, names: Sequence[str], arrivals: Arrivals, **changes: Any
) -> LoadStream:
    """Return a stream of GETs by a caller, named for it, with the usual timeout."""
    stream = LoadStream(
        name=caller.name,
        ports=(port,),
        commands=gets(names),
        arrivals=arrivals,
        timeout_us=TIMEOUT_US,
        greeting=caller.greeting,
    )
    return replace(stream, **changes)


def gets(names: Sequence[str]) -> tuple[bytes, ...]:
    """Return a GET of each."""
    return tuple(command("GET", name) for name in names)
