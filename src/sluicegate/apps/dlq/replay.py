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

from sluicegate.apps.dlq.letters import for_each_place, read, since_us
from sluicegate.apps.dlq.show import matches, printable
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.dead_letter import DeadLetter
from sluicegate.limits.late_charges import (
    PlaceStatus,
    by_place,
    charge_uncounted,
    place_status,
)

LETTERS_MAX: Final = 2_000_000


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
    work = place_status if arguments.dry_run else charge_uncounted
    statuses = asyncio.run(for_each_place(arguments, [*places.items()], work))
    charged = [status for status in statuses if status.uncounted]
    if arguments.json:
        sys.stdout.write(json.dumps(_as_json(arguments, statuses), indent=2) + "\n")
        return 0
    word = "would be charged" if arguments.dry_run else "charged"
    for status in charged:
        sys.stdout.write(
            f"{printable(status.place.user)} by {printable(status.place.rule_id)}: "
            f"{status.uncounted:,} units of {status.letters:,} letters {word}; "
            f"{status.counted:,} were counted\n"
        )
    units = sum(status.uncounted for status in charged)
    sys.stdout.write(
        f"{len(letters):,} letters: {units:,} units {word}, in {len(charged):,} of "
        f"{len(places):,} places; the rest is past, or was charged before\n"
    )
    return 0


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
