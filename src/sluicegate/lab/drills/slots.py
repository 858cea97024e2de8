"""Slots: an engine whose capacity is known, because it has so many slots and work takes so long.

`SLOTS` x `WORK_MS` is `CAPACITY_PER_S`. It is a memory engine behind the fault-injecting one, which
reckons in absolute time: it does that many, whatever the timers of the machine do. So ten times of
what it can do can be offered on a small machine, and what a drill sees is the dispatcher's doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher
from sluicegate.lab.drills.load import LoadStream
from sluicegate.wire.resp import command

SLOTS: Final = 8
WORK_MS: Final = 10
CAPACITY_PER_S: Final = SLOTS * 1_000 // WORK_MS
TIMEOUT_US: Final = 500_000
# More request units than anybody spends, for drills that are not about quotas.
NO_QUOTA: Final = ("--quota-ru", "1000000000")
KEYS: Final = 200
_BATCH: Final = 100


def engine(**options: object) -> str:
    """Return its URL, with further options."""
    values: dict[str, object] = {"slots": SLOTS, "work_ms": WORK_MS, **options}
    return "faulty+memory:?" + "&".join(f"{name}={value}" for name, value in values.items())


def pool(*, places: int = SLOTS) -> tuple[str, ...]:
    """Return flags of a dispatcher that has as many places as the engine has slots."""
    return (
        "--places", str(places),
        "--shard-places", str(places),
        "--deadline-ms", str(TIMEOUT_US // 1_000),
        "--hot", "off",
    )  # fmt: skip


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
