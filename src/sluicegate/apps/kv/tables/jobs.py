"""Jobs: what work on tables in the background shares: admission, many swaps at once, and leases.

Such work enters as everything else does, in the lowest class and on nobody's quota.

Swaps made together are each judged by themselves; what is saved is waiting. An engine that commits
in groups makes all of them durable at once, and one across a network answers all of them in the
time of the slowest.

A lease says who does what only one needs to do, and how far it is. It is stored in the engine,
saves work, and is never what makes the work right: two who hold it, by clocks that disagree or a
long pause, do the same thing twice. Whoever finds it ended goes on where the last one stopped.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.apps.kv.tables.catalogue import Catalogue
from sluicegate.apps.kv.tables.catalogue_copies import CATALOGUE_SPACE
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import Change, Engine, Entry, Place
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.request import Measured
from sluicegate.policies.stack import StackPermit, outcome_of
from sluicegate.stores.engines.batches import all_of

# Who asks, how many rows and how many bytes; it waits until they may enter, or raises.
Admit: TypeAlias = "Callable[[CallContext, int, int], Awaitable[Permit]]"

KEEPER: Final = "(keeper)"


def keeper_call() -> CallContext:
    """Return what folding and sweeping enter with: nobody's quota, and the lowest class."""
    return CallContext(Identity(KEEPER, ()), criticality=Criticality.BULK)


Work: TypeAlias = "Callable[[Sequence[Entry]], Awaitable[None]]"
# What is to be there, and what must be there for it.
Swap: TypeAlias = "tuple[Change, bytes | None]"


async def swap_all(engine: Engine, swaps: Sequence[Swap]) -> list[bool]:
    """Make all swaps; return whether each was made, or raise the first failure when all ended."""
    return await all_of([engine.swap(change, expected) for change, expected in swaps])


_VERSION: Final = 1


class _LeaseRecord(NamedTuple):
    """The fields of a record."""

    holder: str
    until_us: int
    stage: str
    after: Place | None


@final
class JobLease:
    """One job's lease. `stage` and `after` are its progress; they outlive every holder."""

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
        """Take the lease, unless another holds it."""
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
        """Store the progress, if it is time to; False if another has the lease."""
        if not now and self._clock.now_us() < self._written_us + self._lease_us // 4:
            return True
        return await self._write(self._holder)

    async def leave(self) -> None:
        """Release the lease, and store the progress."""
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
    """Return the place of a job's lease."""
    return b"l/" + job.encode(), b""


@final
class TableJobs:
    """What every job on the tables of one engine uses. `holder` names this process in leases."""

    __slots__ = ("admit", "catalogue", "clock", "engine", "holder", "settings")

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        clock: Clock,
        settings: TableSettings,
        admit: Admit,
        *,
        holder: str,
    ) -> None:
        self.engine = engine
        self.catalogue = catalogue
        self.clock = clock
        self.settings = settings
        self.admit = admit
        self.holder = holder

    def lease(self, job: str) -> JobLease:
        """Return the lease of a job, not taken yet."""
        return JobLease(
            self.engine, self.clock, job, holder=self.holder, lease_us=self.settings.lease_us
        )

    async def run(
        self, call: CallContext, rows: int, size_bytes: int, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Do the work once it may enter, and end its permit, whatever comes of it."""
        permit = await self.admit(call, rows, size_bytes)
        began_us = self.clock.now_us()
        outcome = Outcome.SUCCESS
        try:
            await work()
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            now_us = self.clock.now_us()
            if isinstance(permit, StackPermit) and outcome is Outcome.SUCCESS:
                permit.request.measured = Measured(max(now_us - began_us, 1), rows, size_bytes)
            permit.end(outcome, now_us)

    async def run_in_background(self, entries: Sequence[Entry], work: Work) -> None:
        """Do the work on these entries, as the keeper."""
        size = sum(len(entry[2]) for entry in entries)
        await self.run(keeper_call(), len(entries), size, partial(work, entries))

    async def swap(self, swaps: Sequence[Swap], at_once: int) -> list[bool]:
        """Make these swaps, so many at once; return whether each was made."""
        results: list[bool] = []
        for at in range(0, len(swaps), at_once):
            results += await swap_all(self.engine, swaps[at : at + at_once])
        return results
