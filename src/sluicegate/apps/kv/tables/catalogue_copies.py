"""Catalogue copies: the catalogue in three places, any one of which may be unreachable.

An engine of one shard has one place, `book`. An engine of several shards (Redis Cluster,
Cassandra) also has two copies, in partitions of other shards.

    read     asks all three places; the first two answers suffice, and the newer text counts
    change   swaps `book`, then a copy; the change is settled when two places have it

**Consistency.**

- *Changes have one order.* Only a swap of `book` makes a change, on condition of the text before
  it, and the new text has the next revision. A copy is swapped only for a text of a higher
  revision. So each revision has one text, and no place goes back.
- *A read sees every settled change.* A settled change is in two of three places, and a read asks
  two, so they have one in common. Two copies without `book` count only if one of them has a text:
  in a new store, and in one of an older release, only `book` is written.
- *An unsettled change does no harm.* Some dispatchers see it and some do not, as between two looks.
  The next change of that table waits for `settle_us` from when this one was seen settled
  (`Catalogue.settled`), so two dispatchers are at most one phase apart. A reader of two different
  texts writes the newer one to the older place, so the change of a killed dispatcher is settled by
  the next reader. `change` succeeds only when its text is settled.
- *A lost text is restored.* A failover of Redis may lose the last text of `book`; a read that finds
  a newer copy writes it back. A text without a revision comes from an older release, which knows
  only `book`. There `book` counts, so a fleet of both releases works as the older one does.

While one shard is lost, the rows of the other shards are read and written. While the shard of
`book` is lost, no table is created or changed. While the shards of both copies are lost, no change
settles. Bounds: three places, and one read of each for each caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.tables.catalogue_state import revision_of
from sluicegate.contracts.engine import Change, Engine, Place
from sluicegate.contracts.errors import OutcomeUnknown, SluicegateError

CATALOGUE_SPACE: Final = "catalogue"
CATALOGUE_PLACE: Final[Place] = (b"book", b"")
# A third of Redis Cluster's hash slots behind `book`, and two thirds: on three masters or more,
# each place has its own.
COPY_PLACES: Final[tuple[Place, ...]] = ((b"book-11", b""), (b"book-16", b""))
_PLACES: Final = (CATALOGUE_PLACE, *COPY_PLACES)
_BOOK: Final = 0
_MAJORITY: Final = 2


class CatalogueReading(NamedTuple):
    """The newer text of two places, and whether both have it."""

    text: bytes | None
    settled: bool
    seen: dict[int, bytes | None]  # by the number of the place


@final
class CatalogueCopies:
    """The places of the catalogue in one engine."""

    __slots__ = ("_engine", "alone")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        shards = {engine.shard_of(CATALOGUE_SPACE, partition) for partition, _ in _PLACES}
        self.alone = len(shards) < len(_PLACES)  # a copy beside the text would be lost with it

    async def read(self, *, with_book: bool = False) -> CatalogueReading:
        """Return the newer text of two places; `with_book` if one of them must be `book`.

        Where they differ the newer one is written to the older place.
        """
        if self.alone:
            text = await self._get(_BOOK)
            return CatalogueReading(text, True, {_BOOK: text})
        seen = await self._ask(with_book)
        if len({*seen.values()}) == 1:
            return CatalogueReading(next(iter(seen.values())), True, seen)
        newest = _newest(seen)
        settled = newest is not None and await self._spread(newest, seen)
        return CatalogueReading(newest, settled, seen)

    async def swap(self, new: bytes, reading: CatalogueReading) -> bool:
        """Replace the text that was read `with_book`; return False if another was faster.

        Raises `OutcomeUnknown` if `book` has it and no copy does.
        """
        change = Change(CATALOGUE_SPACE, *CATALOGUE_PLACE, new)
        if not await self._engine.swap(change, reading.text):
            return False
        if self.alone:
            return True
        seen = {**reading.seen, _BOOK: new}
        if not await self._spread(new, seen):
            detail = "only one of three places has it, and the others do not answer"
            raise OutcomeUnknown("the catalogue of tables", detail)
        return True

    async def _ask(self, with_book: bool) -> dict[int, bytes | None]:
        """Return the texts of two places, those that answer first."""
        seen: dict[int, bytes | None] = {}
        errors: list[SluicegateError] = []
        tasks = [asyncio.ensure_future(self._get(number)) for number in range(len(_PLACES))]
        pending = {*tasks}
        try:
            while pending and not _is_enough(seen, with_book):
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for number, task in enumerate(tasks):
                    if task not in done:
                        continue
                    try:
                        seen[number] = task.result()
                    except SluicegateError as error:
                        errors.append(error)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        if not _is_enough(seen, with_book):
            raise errors[0]
        return seen

    async def _spread(self, newest: bytes, seen: dict[int, bytes | None]) -> bool:
        """Write this text to places that have an older one; return whether two have it."""
        # First the places that were read, since they answer. The next reader updates the third.
        for number in [*seen, *(one for one in range(len(_PLACES)) if one not in seen)]:
            if [*seen.values()].count(newest) >= _MAJORITY:
                return True
            if seen.get(number) != newest:
                await self._put(number, newest, seen)
        return [*seen.values()].count(newest) >= _MAJORITY

    async def _put(self, number: int, newest: bytes, seen: dict[int, bytes | None]) -> None:
        """Write a text to one place unless a newer one is there, and note it as seen."""
        try:
            old = seen[number] if number in seen else await self._get(number)
            newer = old != newest and _rank(old, number) > _rank(newest, _BOOK)
            change = Change(CATALOGUE_SPACE, *_PLACES[number], newest)
            if not newer and (old == newest or await self._engine.swap(change, old)):
                seen[number] = newest
        except SluicegateError:
            pass  # it does not count, and the next reader tries again

    async def _get(self, number: int) -> bytes | None:
        result = self._engine.read(CATALOGUE_SPACE, (_PLACES[number],))
        (text,) = await result if isinstance(result, Awaitable) else result
        return text


def _is_enough(seen: dict[int, bytes | None], with_book: bool) -> bool:
    if len(seen) < _MAJORITY or (with_book and _BOOK not in seen):
        return False
    return _BOOK in seen or any(text is not None for text in seen.values())


def _newest(seen: dict[int, bytes | None]) -> bytes | None:
    return max(seen.items(), key=lambda item: _rank(item[1], item[0]))[1]


def _rank(text: bytes | None, number: int) -> tuple[int, int]:
    """Order texts; one without a revision counts above all where it is in `book`."""
    revision = revision_of(text)
    if revision == 0 and number == _BOOK:
        return 1 << 62, 0
    return revision, -number
