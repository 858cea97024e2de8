"""Gate settings: how many work at a time, how many wait, and in how many bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges

SLOTS_MAX: Final = 1 << 20
LENGTH_MAX: Final = 1 << 20
BYTES_MAX: Final = 1 << 40
WAITER_BYTES: Final = 2_048  # a task that waits, its future and its place in the queue, roughly


@final
@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """One gate. With `slots` of 0 the limit is found; else `members` gates share them."""

    name: str = "queue"
    slots: int = ranged(0, 0, SLOTS_MAX)
    members: int = ranged(1, 1, LENGTH_MAX)
    length_max: int = ranged(10_000, 1, LENGTH_MAX)
    bytes_max: int = ranged(64 << 20, WAITER_BYTES, BYTES_MAX)
    resources_max: int = ranged(10_000, 1, LENGTH_MAX)

    def __post_init__(self) -> None:
        check_ranges("gate", self)
