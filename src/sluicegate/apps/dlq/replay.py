"""Replay: charge the store with what was admitted without it.

How much, and why never twice, is `limits/late_charges.py`; here letters are read and charged place
by place, with progress on standard error. Ctrl-C ends it cleanly: what is charged stays charged.
"""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Final

from sluicegate.apps.dlq.letters import PLACES_AT_ONCE, read, since_us, warn, with_timeout
from sluicegate.apps.dlq.show import matches, printable
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.dead_letter import DeadLetter
from sluicegate.limits.late_charges import (
    CountingPlace,
    PlaceStatus,
    by_place,
    charge_uncounted,
    place_status,
)
from sluicegate.limits.stores import open_stores

LETTERS_MAX: Final = 2_000_000
TOLD_EVERY: Final = 1_000  # places


def replay(arguments: Namespace) -> int:
    """Charge, or say what would be charged."""
    if not arguments.store:
        raise BadValue("--store", "", "give the URL of the store that counts, as redis://host:6379")
    from_us = since_us(arguments)
    letters: dict[str, DeadLetter] = {}
    for one in read(arguments):
        if isinstance(one, DeadLetter) and matches(one, arguments, from_us):
            letters[one.id] = one
            if len(letters) > LETTERS_MAX:
                raise BadValue("replay", len(letters), "say --since, --user or --rule")
    places = by_place(letters.values())
    statuses = asyncio.run(_each(arguments, [*places.items()]))
    charged = [stand for stand in statuses if stand.uncounted]
    if arguments.json:
        sys.stdout.write(json.dumps(_as_json(arguments, statuses), indent=2) + "\n")
        return 0
    word = "would be charged" if arguments.dry_run else "charged"
    for stand in charged:
        sys.stdout.write(
            f"{printable(stand.place.user)} by {printable(stand.place.rule_id)}: "
            f"{stand.uncounted:,} units of {stand.letters:,} letters {word}; "
            f"{stand.counted:,} were counted\n"
        )
    units = sum(stand.uncounted for stand in charged)
    sys.stdout.write(
        f"{len(letters):,} letters: {units:,} units {word}, in {len(charged):,} of "
        f"{len(places):,} places; the rest is past, or was charged before\n"
    )
    return 0


async def _each(
    arguments: Namespace, places: Sequence[tuple[CountingPlace, Sequence[DeadLetter]]]
) -> list[PlaceStatus]:
    stores = open_stores(with_timeout(arguments.store), arguments.prefix)
    charge_place = place_status if arguments.dry_run else charge_uncounted
    statuses: list[PlaceStatus] = []
    try:
        store = stores.here()
        for first in range(0, len(places), PLACES_AT_ONCE):
            some = places[first : first + PLACES_AT_ONCE]
            statuses += await asyncio.gather(*(charge_place(store, *one) for one in some))
            if first and first % TOLD_EVERY == 0:
                warn(f"{first:,} of {len(places):,} places")
        return statuses
    finally:
        await stores.aclose()


def _as_json(arguments: Namespace, statuses: Sequence[PlaceStatus]) -> dict[str, object]:
    return {
        "dry_run": arguments.dry_run,
        "places": [
            {
                "user": one.place.user,
                "rule": one.place.rule_id,
                "letters": one.letters,
                "units": one.uncounted,
                "counted_before": one.counted,
            }
            for one in statuses
        ],
    }
