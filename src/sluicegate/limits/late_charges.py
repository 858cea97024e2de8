"""Late charges: what was admitted without the store is charged there, once.

A store that comes back does not know what was let in without it. For each user and rule the letters
are stepped through the limit's own kernel, to now by the store's clock; what a limit that has seen
only these would still hold is charged, as far as the store's limit can hold it. So a letter whose
window has passed charges nothing, and half of a bucket that has refilled charges half.

A letter is charged once, whoever replays and however often: before it is charged its id is claimed
in the store itself, as a limit of one that lasts longer than the letter matters. A replay that is
killed between the two leaves the letters of that user and rule uncharged, never charged twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import SHARED, Charge, SharedKey, Store
from sluicegate.limits.completeness import capacity, units_held
from sluicegate.limits.dead_letter import DeadLetter

CLAIMS_AT_ONCE: Final = 64
_CLAIM_US_MIN: Final = 3_600_000_000
_CLAIM_SPANS: Final = 4  # a letter matters for two of its limit's spans at most


class CountingPlace(NamedTuple):
    """Where units are counted."""

    user: str
    rule_id: str
    limit: Limit


class PlaceStatus(NamedTuple):
    """How a user stands under a rule: what the store has counted, and what it has not."""

    place: CountingPlace
    at_us: int  # by the store's clock
    counted: int
    uncounted: int  # by letters that were not replayed
    letters: int  # of those, how many still weigh

    @property
    def over(self) -> int:
        """By how much both together are beyond the limit now."""
        return max(self.counted + self.uncounted - capacity(self.place.limit), 0)


def by_place(letters: Iterable[DeadLetter]) -> dict[CountingPlace, list[DeadLetter]]:
    """Return the letters that admitted something, by where that is counted, oldest first."""
    places: dict[CountingPlace, list[DeadLetter]] = {}
    for letter in letters:
        if letter.allowed and letter.degraded and not letter.shadow and letter.limit is not None:
            place = CountingPlace(letter.user, letter.rule_id, letter.limit)
            places.setdefault(place, []).append(letter)
    for some in places.values():
        some.sort(key=lambda letter: letter.at_us)
    return places


async def place_status(
    store: Store, place: CountingPlace, letters: Sequence[DeadLetter]
) -> PlaceStatus:
    """Return how things stand; nothing is changed."""
    counted, at_us = await _read_counter(store, place)
    weighing = _weighing(place, letters, at_us)
    ours = await _claim_letters(store, place, weighing, keep=False)
    return PlaceStatus(place, at_us, counted, units_held(place.limit, ours, at_us), len(ours))


async def charge_uncounted(
    store: Store, place: CountingPlace, letters: Sequence[DeadLetter]
) -> PlaceStatus:
    """Charge what was not counted; return the state before."""
    counted, at_us = await _read_counter(store, place)
    weighing = _weighing(place, letters, at_us)
    ours = await _claim_letters(store, place, weighing, keep=True)
    units = units_held(place.limit, ours, at_us)
    if units:
        await store.settle([_charge(place, units)])
    return PlaceStatus(place, at_us, counted, units, len(ours))


def shared_id(limit: Limit) -> str:
    """What a limit is called here; where keys name rules, the rule's name takes its place."""
    words = (limit.count, limit.period_us, limit.algorithm.value, limit.burst, limit.cells)
    return SHARED + " ".join(map(str, words))


def _weighing(place: CountingPlace, letters: Sequence[DeadLetter], now_us: int) -> list[DeadLetter]:
    """The letters that, each alone, would still weigh; a clock ahead of the store's is now."""
    return [one for one in letters if units_held(place.limit, [one], max(now_us, one.at_us))]


async def _read_counter(store: Store, place: CountingPlace) -> tuple[int, int]:
    try:
        ruling = await store.take([_charge(place, 0)], keep=False)
    except BadValue as error:
        raise BadValue(f"rule {place.rule_id}", place.limit, error.remedy) from None
    return capacity(place.limit) - ruling.decisions[0].remaining, ruling.at_us


async def _claim_letters(
    store: Store, place: CountingPlace, letters: Sequence[DeadLetter], *, keep: bool
) -> list[DeadLetter]:
    """Return those letters that nobody has claimed; with `keep` they are claimed now."""
    ours: list[DeadLetter] = []
    for first in range(0, len(letters), CLAIMS_AT_ONCE):
        some = letters[first : first + CLAIMS_AT_ONCE]
        rulings = await asyncio.gather(
            *(store.take([_claim(place, letter)], keep=keep) for letter in some)
        )
        ours += [one for one, ruling in zip(some, rulings, strict=True) if ruling.allowed]
    return ours


def _charge(place: CountingPlace, units: int) -> Charge:
    key = SharedKey(place.user, place.rule_id)
    return Charge(shared_id(place.limit), place.limit, key, units)


def _claim(place: CountingPlace, letter: DeadLetter) -> Charge:
    limit = place.limit
    span_us = max(limit.period_us, limit.period_us * limit.burst // limit.count)
    claim = Limit(1, period_us=max(_CLAIM_SPANS * span_us, _CLAIM_US_MIN))
    return Charge(shared_id(claim), claim, SharedKey(place.user, f"replayed {letter.id}"))
