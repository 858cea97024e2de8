"""Copies of the catalogue: any one place may fail, and no settled change is ever unseen."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, final

import pytest

from sluicegate.apps.kv.tables.catalogue import Catalogue
from sluicegate.apps.kv.tables.catalogue_copies import (
    CATALOGUE_PLACE,
    CATALOGUE_SPACE,
    COPY_PLACES,
    CatalogueCopies,
)
from sluicegate.apps.kv.tables.catalogue_state import (
    EMPTY_CATALOGUE,
    CatalogueState,
    TableState,
    encode_catalogue,
    revision_of,
    with_table,
)
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.contracts.engine import Change, Place
from sluicegate.contracts.errors import OutcomeUnknown, Unavailable
from sluicegate.stores.engines.redis.keys import bucket_of, tag_of
from sluicegate.stores.redis.slots import SLOTS, slot_of
from sluicegate.testing import HandClock

BOOK = CATALOGUE_PLACE[0]
COPIES = tuple(place[0] for place in COPY_PLACES)
PLACES = (BOOK, *COPIES)
SETTINGS = TableSettings()


@final
class Shards:
    """An engine with a shard for each partition; some of them fail, or never answer."""

    def __init__(self, values: dict[bytes, bytes | None] | None = None) -> None:
        self.values: dict[bytes, bytes | None] = {} if values is None else values
        self.down: set[bytes] = set()
        self.silent: set[bytes] = set()
        self.swaps: list[bytes] = []

    async def read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        assert space == CATALOGUE_SPACE
        ((partition, _),) = places
        await self._reach(partition)
        return [self.values.get(partition)]

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        await self._reach(change.partition)
        if self.values.get(change.partition) != expected:
            return False
        self.swaps.append(change.partition)
        self.values[change.partition] = change.value
        return True

    async def _reach(self, partition: bytes) -> None:
        await asyncio.sleep(0)
        if partition in self.down:
            raise Unavailable("the shard", "it is away")
        if partition in self.silent:
            await asyncio.get_running_loop().create_future()

    def shard_of(self, _space: str, partition: bytes) -> str:
        return partition.decode()


def node(shards: Shards) -> tuple[Catalogue, HandClock]:
    clock = HandClock()
    return Catalogue(shards, clock, SETTINGS), clock  # type: ignore[arg-type]


def sealing(state: CatalogueState) -> CatalogueState:
    return with_table(state, "t", TableState("sealing", state.tables["t"].epoch + 1))


def revisions(shards: Shards) -> list[int]:
    return [revision_of(shards.values.get(place)) for place in PLACES]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["down", "silent"])
async def test_any_one_place_away_leaves_tables_known(place: bytes, how: str) -> None:
    shards = Shards()
    first, _ = node(shards)
    await first.create_table("t")
    getattr(shards, how).add(place)
    other, clock = node(shards)
    for _ in range(3):
        clock.advance(us=2 * SETTINGS.stale_us + 1)
        assert (await other.current("t")).exists


@pytest.mark.parametrize("place", COPIES)
async def test_change_with_one_copy_away_is_settled(place: bytes) -> None:
    shards = Shards()
    first, _ = node(shards)
    shards.down.add(place)
    await first.create_table("t")
    shards.down.clear()
    shards.down.add(BOOK)  # the two copies alone have to know
    other, _ = node(shards)
    await other.refresh()
    assert "t" in other.state.tables


async def test_change_without_book_is_refused() -> None:
    shards = Shards()
    first, _ = node(shards)
    await first.create_table("t")
    shards.down.add(BOOK)
    with pytest.raises(Unavailable) as found:
        await first.change(sealing)
    assert not isinstance(found.value, OutcomeUnknown)
    assert revisions(shards) == [1, 1, -1]


async def test_change_without_copies_is_unknown_and_not_settled() -> None:
    shards = Shards()
    first, _ = node(shards)
    await first.create_table("t")
    other, clock = node(shards)
    await other.refresh()

    async def lose() -> CatalogueState:
        reading = await first._copies.read(with_book=True)
        state = sealing(first.state)._replace(revision=2)
        shards.down.update(COPIES)
        with pytest.raises(OutcomeUnknown):
            await first._copies.swap(encode_catalogue(state), reading)
        return state

    state = await lose()
    shards.down.clear()
    shards.down.add(COPIES[1])
    shards.swaps.clear()
    await other.refresh()  # sees it first, and settles it
    assert other.state == state
    assert shards.swaps == [COPIES[0]]
    assert not other.settled("t")
    clock.advance(us=SETTINGS.settle_us)
    assert other.settled("t")


async def test_unsettled_change_does_not_start_the_settle_time() -> None:
    shards = Shards()
    first, clock = node(shards)
    await first.create_table("t")
    shards.values[BOOK] = encode_catalogue(sealing(first.state)._replace(revision=2))

    async def never(change: Change, expected: bytes | None) -> bool:
        raise Unavailable("the shard", f"it takes no writes of {change.partition!r}")

    shards.swap = never  # type: ignore[method-assign]
    for _ in range(4):
        clock.advance(us=SETTINGS.settle_us)
        await first.refresh()
        assert first.view("t").phase == "sealing"
        assert not first.settled("t")


async def test_catalogue_of_older_release_is_read_from_book_alone() -> None:
    old = json.loads(encode_catalogue(with_table(EMPTY_CATALOGUE, "t", TableState())))
    del old["revision"]
    shards = Shards({BOOK: json.dumps(old).encode()})
    shards.down.add(BOOK)
    first, _ = node(shards)
    with pytest.raises(Unavailable):
        await first.refresh()  # two empty copies do not mean that there are no tables
    shards.down.clear()
    await first.refresh()
    assert "t" in first.state.tables
    # A dispatcher of that release changes `book`, and knows of no copies.
    await first.create_table("u")
    old["tables"]["v"] = ["normal", 0, ""]
    shards.values[BOOK] = json.dumps(old).encode()
    await first.refresh()
    assert set(first.state.tables) == {"t", "v"}


async def test_lost_text_of_book_is_restored_from_copy() -> None:
    shards = Shards()
    first, _ = node(shards)
    await first.create_table("t")
    before = shards.values[BOOK]
    await first.create_table("u")
    after = shards.values[BOOK]
    for lost in (before, None):
        shards.values = {BOOK: lost, COPIES[0]: after, COPIES[1]: before}  # after a failover
        shards.down = {COPIES[1]}
        other, _ = node(shards)
        await other.refresh()
        assert set(other.state.tables) == {"t", "u"}
        assert shards.values[BOOK] == after


async def test_engine_of_one_shard_has_one_place() -> None:
    shards = Shards()
    shards.shard_of = lambda _space, partition: "all"  # type: ignore[method-assign]
    first, _ = node(shards)
    await first.create_table("t")
    assert [*shards.values] == [BOOK]


def test_places_lie_on_three_masters_of_redis() -> None:
    slots = [slot_of(f"{{{tag_of(CATALOGUE_SPACE, bucket_of(place))}}}") for place in PLACES]
    for masters in (3, 4, 5, 6, 9, 12):
        assert len({slot * masters // SLOTS for slot in slots}) == 3


# Many dispatchers, with links that fail at random.


@final
class Links:
    """One dispatcher's way to the shards: some calls fail before they are made, some after."""

    def __init__(self, shards: Shards, chance: random.Random, story: Story) -> None:
        self._shards = shards
        self._chance = chance
        self._story = story

    async def _pause(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)
        if self._chance.random() < self._story.failing:
            raise Unavailable("the shard", "it is away")

    async def read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        await self._pause()
        values = await self._shards.read(space, places)
        await self._pause()
        return values

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        await self._pause()
        done = await self._shards.swap(change, expected)
        if done:
            self._story.note(change)
        try:
            await self._pause()
        except Unavailable as error:
            raise OutcomeUnknown(error.what, error.detail) from None
        return done

    def shard_of(self, space: str, partition: bytes) -> str:
        return self._shards.shard_of(space, partition)


@final
class Story:
    """The texts of each revision, the revision of each place, and the highest settled one."""

    def __init__(self, failing: float) -> None:
        self.failing = failing
        self.texts: dict[int, bytes] = {}
        self.places: dict[bytes, int] = {}
        self.settled = -1  # the highest revision that every later read must see
        self.changes = self.reads = 0

    def note(self, change: Change) -> None:
        revision = revision_of(change.value)
        assert change.value is not None
        assert self.texts.setdefault(revision, change.value) == change.value, "two texts of one"
        assert revision > self.places.get(change.partition, 0), "a place went back"
        self.places[change.partition] = revision


async def live(copies: CatalogueCopies, chance: random.Random, story: Story) -> None:
    for number in range(12):
        await asyncio.sleep(0)
        known = story.settled
        with suppress(Unavailable):
            if chance.random() < 0.5:
                reading: Any = await copies.read()
                story.reads += 1
            else:
                reading = await copies.read(with_book=True)
                revision = revision_of(reading.text)
                assert revision >= known, "a settled change was not seen"
                state = CatalogueState(
                    {}, {}, (f"{number}-{chance.random()}",), 0, max(revision, 0) + 1
                )
                if not await copies.swap(encode_catalogue(state), reading):
                    continue
                story.changes += 1
                story.settled = max(story.settled, state.revision)
                continue
            revision = revision_of(reading.text)
            assert revision >= known, "a settled change was not seen"
            if reading.settled:
                story.settled = max(story.settled, revision)


@pytest.mark.parametrize("failing", [0.0, 0.1, 0.3])
async def test_dispatchers_see_every_settled_change(failing: float) -> None:
    changes = reads = 0
    for seed in range(60):
        chance = random.Random(seed)
        story, shards = Story(failing), Shards()
        nodes = [CatalogueCopies(Links(shards, chance, story)) for _ in range(5)]  # type: ignore[arg-type]
        await asyncio.gather(*(live(copies, chance, story) for copies in nodes))
        changes += story.changes
        reads += story.reads
    assert changes > 60  # it was a story, and not silence
    assert reads > 60
