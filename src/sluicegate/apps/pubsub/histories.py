"""Histories: the parts of the log that this node is the writer and the home of.

In files there is one part, on this node's disk, and it stays where it is. In Kafka the log is one
topic of several partitions that all nodes can read: a channel is in one part for good, and a part
has one node as its home, by consistent hashing over the members. So a channel goes to another node
with all its messages, and its positions stay what they were: they carry the part, and not the node.

Bounds: `PARTS_MAX`, for a position has room for so many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, final

from sluicegate.apps.pubsub.channel import STRIDE, ChannelKey
from sluicegate.apps.pubsub.history import ChannelHistory
from sluicegate.kernels.hash_ring import Rendezvous, digest

PARTS_MAX: Final = STRIDE // 2
FILES: Final = 0  # the only part, in files


def part_of(key: ChannelKey, parts: int) -> int:
    """The part that a channel is in."""
    return digest(f"{key.account}/{key.name}") % parts if parts > 1 else FILES


def tag_of_part(part: int) -> int:
    """What positions of a part leave over when divided by `STRIDE`; odd, as those of nodes are."""
    return 2 * part + 1


def homes_of_parts(members: Collection[str], parts: int) -> Sequence[str]:
    """The home of each part."""
    ring = Rendezvous(dict.fromkeys(members, 1.0))
    return [ring.owner(f"part {part}") for part in range(parts)]


@final
class Histories:
    """By part; a channel of another part is at home elsewhere."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.by_part: dict[int, ChannelHistory] = {}

    def of(self, key: ChannelKey) -> ChannelHistory:
        """The history that a channel is in."""
        return self.by_part[part_of(key, self.parts)]

    def find(self, key: ChannelKey) -> ChannelHistory | None:
        """The same, if it is here and this node is its home."""
        history = self.by_part.get(part_of(key, self.parts))
        return None if history is None or history.lost_to else history

    def sum_of(self, count: Callable[[ChannelHistory], int]) -> int:
        """Over all parts."""
        return sum(count(history) for history in self.by_part.values())

    def positions(self) -> Mapping[int, int]:
        """The newest of each part."""
        return {part: history.newest for part, history in self.by_part.items()}

    def trim(self, now_us: int) -> None:
        """Remove what is too old, or too much, and keep members where a start finds them."""
        for history in self.by_part.values():
            history.trim(now_us)
            history.state_members(now_us)

    def close(self, grace_us: int) -> None:
        """Let what is under way become durable."""
        for history in self.by_part.values():
            history.close(grace_us)
