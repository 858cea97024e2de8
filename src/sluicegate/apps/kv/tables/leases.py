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


class _LeaseRecord(NamedTuple):
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
        "_lease_us",
        "_place",
        "_stored",
        "_written_us",
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
        self._stored: bytes | None = None
        self._written_us = 0
        self.stage = ""
        self.after: Place | None = None

    async def take(self) -> bool:
        """Take it, unless somebody else holds it."""
        result = self._engine.read(CATALOGUE_SPACE, (self._place,))
        stored = (await result if isinstance(result, Awaitable) else result)[0]
        if stored is not None:
            record = self._parse(stored)
            if record.holder not in ("", self._holder) and self._clock.now_us() < record.until_us:
                return False
            self.stage, self.after = record.stage, record.after
        self._stored = stored
        return await self._write(self._holder)

    def _parse(self, stored: bytes) -> _LeaseRecord:
        what = f"the lease {self._place[0].decode()} in the catalogue"
        try:
            record = json.loads(stored)
            version = record["version"]
            if version == _VERSION:
                after = record["after"]
                return _LeaseRecord(
                    str(record["holder"]),
                    int(record["until_us"]),
                    str(record["stage"]),
                    None if after is None else (bytes.fromhex(after[0]), bytes.fromhex(after[1])),
                )
        except (ValueError, TypeError, KeyError, IndexError):
            detail = "what is kept cannot be read; take the record away, and the job begins anew"
            raise Unavailable(what, detail) from None
        raise Unavailable(what, f"it is of version {version}; upgrade this dispatcher")

    async def save(self, *, now: bool = False) -> bool:
        """Say how far it is, if it is time to; False if somebody else has it."""
        if not now and self._clock.now_us() < self._written_us + self._lease_us // 4:
            return True
        return await self._write(self._holder)

    async def leave(self) -> None:
        """Give it up, and say how far it is."""
        await self._write("")

    async def _write(self, holder: str) -> bool:
        now_us = self._clock.now_us()
        after = None if self.after is None else [self.after[0].hex(), self.after[1].hex()]
        record = {
            "version": _VERSION,
            "holder": holder,
            "until_us": now_us + self._lease_us,
            "stage": self.stage,
            "after": after,
        }
        text = json.dumps(record, separators=(",", ":")).encode()
        if not await self._engine.swap(Change(CATALOGUE_SPACE, *self._place, text), self._stored):
            return False
        self._stored = text
        self._written_us = now_us
        return True


def lease_place(job: str) -> Place:
    """Where the lease of a job is kept."""
    return b"l/" + job.encode(), b""
