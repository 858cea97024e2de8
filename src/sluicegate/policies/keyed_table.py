"""By key: a bounded table of what a policy keeps for each backend, class or key.

Only what is at rest is forgotten: an entry that would be the same if it were made anew. So nobody
can make a policy forget by naming many keys. When the table is full of entries that are not at
rest, a new key gets none, and the policy lets it pass unjudged and counts that: these policies
help a caller, they do not stand between it and a limit.

Cost: one look-up. A new key looks at up to `LOOKS` of the oldest entries to find room.
Bounds: `keys_max` entries.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar, final

from sluicegate.contracts.request import Request

LOOKS: Final = 4
KEYS_MAX: Final = 1 << 24
FORGET_US: Final = 600_000_000  # names that nobody has asked for so long make room

# A backend, an operation and a class; -1 where classes are not told apart.
Key = tuple[str, str, int]


class Resting(Protocol):
    """An entry that can say whether it has anything to remember."""

    def at_rest(self, now_us: int) -> bool:
        """Whether a new one would behave the same."""
        ...


E = TypeVar("E", bound=Resting)


@final
class KeyedTable(Generic[E]):
    """At most `keys_max` entries."""

    __slots__ = ("entries", "keys_max", "untracked")

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self.entries: dict[Key, E] = {}
        self.untracked = 0

    def has_room(self, now_us: int) -> bool:
        """Whether a new key may be entered; forgets up to `LOOKS` entries that are at rest."""
        entries = self.entries
        if len(entries) < self.keys_max:
            return True
        for _ in range(min(LOOKS, len(entries))):
            key = next(iter(entries))
            entry = entries.pop(key)
            if entry.at_rest(now_us):
                return True
            entries[key] = entry  # behind the others: the next one looks elsewhere
        self.untracked += 1
        return False

    def __len__(self) -> int:
        return len(self.entries)


def key_of(request: Request, *, by_operation: bool, by_criticality: bool) -> Key:
    """The backend that a request needs, and its class as far as that is told apart."""
    return (
        request.shard,
        request.operation if by_operation else "",
        # Adding makes a plain number of it in 18 ns; `int()` of a member of an enum takes 64.
        request.criticality + 0 if by_criticality else -1,
    )
