"""Slots: an engine whose capacity is known, because it has so many slots and work takes so long.

`SLOTS` x `WORK_MS` is `CAPACITY_PER_S`. It is a memory engine behind the fault-injecting one, which
reckons in absolute time: it does that many, whatever the timers of the machine do. So ten times of
what it can do can be offered on a small machine, and what a drill sees is the dispatcher's doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.lab.drills.dispatcher import Dispatcher
from sluicegate.wire.resp import command

SLOTS: Final = 8
WORK_MS: Final = 10
CAPACITY_PER_S: Final = SLOTS * 1_000 // WORK_MS
TIMEOUT_US: Final = 500_000
# More request units than anybody asks for: a drill that is not about quotas is not held up by them.
NO_QUOTA: Final = ("--quota-ru", "1000000000")
KEYS: Final = 200
_BATCH: Final = 100


def engine(**options: object) -> str:
    """Its URL, with what else it is to do."""
    said: dict[str, object] = {"slots": SLOTS, "work_ms": WORK_MS, **options}
    return "faulty+memory:?" + "&".join(f"{name}={value}" for name, value in said.items())


def pool(*, places: int = SLOTS) -> tuple[str, ...]:
    """Flags of a dispatcher that has as many places as the engine has slots."""
    return (
        "--places", str(places),
        "--shard-places", str(places),
        "--deadline-ms", str(TIMEOUT_US // 1_000),
        "--hot", "off",
    )  # fmt: skip


def keys(table: str, count: int = KEYS) -> list[str]:
    """Names of rows: a table, a partition each."""
    return [f"{table}:k{number}" for number in range(count)]


def fill(dispatcher: Dispatcher, names: Sequence[str], value: bytes = b"v" * 100) -> None:
    """Put a value at each of these."""
    commands = []
    for begin in range(0, len(names), _BATCH):
        pairs: list[str | bytes] = []
        for name in names[begin : begin + _BATCH]:
            pairs += [name, value]
        commands.append(command("MSET", *pairs))
    dispatcher.do(commands)


def gets(names: Sequence[str]) -> tuple[bytes, ...]:
    """A GET of each."""
    return tuple(command("GET", name) for name in names)
