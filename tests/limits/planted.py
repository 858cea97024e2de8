"""A true log of an outage, and errors planted into it, with what a check must then report."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.completeness import (
    DUPLICATED,
    MISSING,
    WRONG_COST,
    WRONGLY_ADMITTED,
    WRONGLY_REFUSED,
    DecisionRecord,
)
from sluicegate.limits.dead_letter import BEGUN, CLOSED, DeadLetter, ProcessMark
from sluicegate.stores.memory.tables import table_for
from sluicegate.testing import START_US

SECOND = 1_000_000
TEN_A_MINUTE = Limit(10, period_us=60 * SECOND, algorithm=Algorithm.FIXED_WINDOW)
LIMITS = (
    TEN_A_MINUTE,
    Limit(20, period_us=10 * SECOND),
    Limit(15, period_us=30 * SECOND, algorithm=Algorithm.SLIDING_WINDOW),
    Limit(5, period_us=5 * SECOND, burst=12, algorithm=Algorithm.TOKEN_BUCKET),
)


class World(NamedTuple):
    """What really happened: each process's letters, and all decisions."""

    letters: list[DeadLetter]
    decided: list[DecisionRecord]
    marks: list[ProcessMark]


def make_world(seed: int, letters: int = 400, processes: int = 3) -> World:
    """Traffic of which some is decided by the store and some without; all of it rightly."""
    dice = random.Random(seed)
    tables = {limit: table_for("true", limit, 10_000) for limit in LIMITS}
    numbers, before = Counter[str](), Counter[str]()
    world = World([], [], [])
    now_us = START_US
    while len(world.letters) < letters:
        now_us += dice.randint(1, SECOND)
        user, place = f"user-{dice.randrange(4)}", dice.randrange(len(LIMITS))
        weight, process = dice.randint(1, 4), f"node/{dice.randrange(processes)}"
        limit = LIMITS[place]
        allowed = tables[limit].take(user, weight, now_us).allowed
        degraded = dice.random() < 0.7
        letter_id = ""
        if degraded:
            letter = DeadLetter(
                user,
                f"rule-{place}",
                weight,
                now_us,
                allowed=allowed,
                limit=limit,
                process=process,
                number=numbers[process],
                before=before[process],
            )
            numbers[process] += 1
            before[process] += weight
            world.letters.append(letter)
            letter_id = letter.id
        world.decided.append(
            DecisionRecord(now_us, user, f"rule-{place}", weight, allowed, degraded, letter_id)
        )
    for process in numbers:
        world.marks.append(ProcessMark(BEGUN, process, 0, 0, START_US))
        world.marks.append(ProcessMark(CLOSED, process, numbers[process], before[process], now_us))
    return world


def altered(letter: DeadLetter, **changes: object) -> DeadLetter:
    fields = {name: getattr(letter, name) for name in DeadLetter.__slots__}
    fields.update(changes)
    return DeadLetter(**fields)


PLANTS = (WRONGLY_ADMITTED, WRONGLY_REFUSED, MISSING, DUPLICATED, WRONG_COST)


def plant(world: World, places: Sequence[int], dice: random.Random) -> tuple[World, Counter[str]]:
    """Errors at these letters, and what is to be reported: a kind and an id each."""
    letters, expected = list[DeadLetter](), Counter[str]()
    chosen = set(places)
    by_id = {one.id: one for one in world.decided}
    for at, letter in enumerate(world.letters):
        if at not in chosen:
            letters.append(letter)
            continue
        fitting = [kind for kind in PLANTS if kind != (
            WRONGLY_ADMITTED if letter.allowed else WRONGLY_REFUSED
        )]  # fmt: skip
        kind = dice.choice(fitting)
        expected[f"{kind} {letter.id}"] += 1
        if kind in {WRONGLY_ADMITTED, WRONGLY_REFUSED}:
            # The caller was told so, and both records say it.
            letters.append(altered(letter, allowed=not letter.allowed))
            by_id[letter.id] = by_id[letter.id]._replace(allowed=not letter.allowed)
        elif kind == WRONG_COST:
            letters.append(altered(letter, cost=letter.cost + dice.randint(1, 5)))
        elif kind == DUPLICATED:
            letters += [letter, letter]
    decided = [by_id[one.id] if one.id else one for one in world.decided]
    dice.shuffle(letters)
    return World(letters, decided, world.marks), expected
