"""Moves: which channels came to this node when the members of its cluster changed, and when.

What a channel had before is in the history of its home of then, and stays there. Who reads it here
from the beginning must hear that something is missing; so each change is kept beside the history,
with the position at which it came into force. A node without a record begins with the members that
it has: it cannot know what there was elsewhere before.

Bound: `CHANGES_MAX` changes; of what came before them every channel is taken to have moved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.feed import name_of
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.hash_ring import Rendezvous
from sluicegate.stores.files.segments import sync_folder

FILE: Final = "members.json"
VERSION: Final = 1
CHANGES_MAX: Final = 100


class _Change(NamedTuple):
    position: int
    members: list[str]
    ring: Rendezvous


@final
class Moves:
    """The changes that this node has seen."""

    def __init__(self, node: str, folder: str) -> None:
        self._node = node
        self._path = Path(folder) / FILE
        self._floor = 0
        self._changes: list[_Change] = []

    def read(self) -> None:
        """Read what was recorded."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return
        try:
            record = json.loads(text)
            changes: Any = record["changes"] if record["version"] == VERSION else None
            self._floor = int(record["floor"])
            for one in changes:
                self._add(int(one["position"]), list(one["members"]))
        except (ValueError, KeyError, TypeError):
            remedy = "it is damaged, or of another version; restore it"
            raise BadValue(str(self._path), text, remedy) from None

    def record(self, members: Collection[str], newest: int) -> bool:
        """Take note of the members from now on; whether they are others than before."""
        names = sorted(members)
        if self._changes and self._changes[-1].members == names:
            return False
        self._add(newest if self._changes else 0, names)
        record = {
            "version": VERSION,
            "floor": self._floor,
            "changes": [
                {"position": one.position, "members": one.members} for one in self._changes
            ],
        }
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        sync_folder(str(self._path.parent))
        return True

    def moved(self, key: ChannelKey) -> int:
        """The position behind which a channel is here; 0 if it always was."""
        name, found = name_of(key), self._floor
        here = True
        for at, change in enumerate(self._changes):
            before, here = here, change.ring.owner(name) == self._node
            if at and here and not before:
                found = change.position
        return found

    def _add(self, position: int, names: list[str]) -> None:
        self._changes.append(_Change(position, names, Rendezvous(dict.fromkeys(names, 1.0))))
        if len(self._changes) > CHANGES_MAX:
            self._floor = self._changes[1].position
            del self._changes[0]
