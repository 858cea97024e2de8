"""Leases: who does what only one needs to do, and how far it is, kept in the engine.

A lease saves work and is never what makes it right: two who hold it, by clocks that disagree or a
long pause, do the same thing twice. Whoever finds it ended goes on where the last one had come to.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.tables.catalogue import CATALOGUE_SPACE
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Change, Engine, Place
from sluicegate.contracts.errors import Unavailable

_VERSION: Final = 1


class _Said(NamedTuple):
    """What a record says."""

    holder: str
    until_us: int
    stage: str
    after: Place | None


@final
class JobLease:
    """One job's lease. `stage` and `after` say how far it is; they outlive every holder."""

    __slots__ = (
        "_clock",
        "_engine",
        "_holder",
        "_kept",
        "_lease_us",
        "_place",
        "_said_us",
        "after",
        "stage",
    )

    def __init__(
        self, engine: Engine, clock: Clock, job: str, *, holder: str, lease_us: int
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._place: Place = (b"l/" + job.encode(), b"")
        self._holder = holder
        self._lease_us = lease_us
        self._kept: bytes | None = None
        self._said_us = 0
        self.stage = ""
        self.after: Place | None = None

    async def take(self) -> bool:
        """Take it, unless somebody else holds it."""
        told = self._engine.read(CATALOGUE_SPACE, (self._place,))
        kept = (await told if isinstance(told, Awaitable) else told)[0]
        if kept is not None:
            said = self._read(kept)
            if said.holder not in ("", self._holder) and self._clock.now_us() < said.until_us:
                return False
            self.stage, self.after = said.stage, said.after
        self._kept = kept
        return await self._say(self._holder)

    def _read(self, kept: bytes) -> _Said:
        what = f"the lease {self._place[0].decode()} in the catalogue"
        try:
            said = json.loads(kept)
            version = said["version"]
            if version == _VERSION:
                after = said["after"]
                return _Said(
                    str(said["holder"]),
                    int(said["until_us"]),
                    str(said["stage"]),
                    None if after is None else (bytes.fromhex(after[0]), bytes.fromhex(after[1])),
                )
        except (ValueError, TypeError, KeyError, IndexError):
            seen = "what is kept cannot be read; take the record away, and the job begins anew"
            raise Unavailable(what, seen) from None
        raise Unavailable(what, f"it is of version {version}; upgrade this dispatcher")

    async def keep(self, *, now: bool = False) -> bool:
        """Say how far it is, if it is time to; False if somebody else has it."""
        if not now and self._clock.now_us() < self._said_us + self._lease_us // 4:
            return True
        return await self._say(self._holder)

    async def leave(self) -> None:
        """Give it up, and say how far it is."""
        await self._say("")

    async def _say(self, holder: str) -> bool:
        now_us = self._clock.now_us()
        after = None if self.after is None else [self.after[0].hex(), self.after[1].hex()]
        said = {
            "version": _VERSION,
            "holder": holder,
            "until_us": now_us + self._lease_us,
            "stage": self.stage,
            "after": after,
        }
        text = json.dumps(said, separators=(",", ":")).encode()
        if not await self._engine.swap(Change(CATALOGUE_SPACE, *self._place, text), self._kept):
            return False
        self._kept = text
        self._said_us = now_us
        return True


def lease_place(job: str) -> Place:
    """Where the lease of a job is kept."""
    return b"l/" + job.encode(), b""
