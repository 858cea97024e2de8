"""Worlds of dispatchers before one engine, each a function of its seed, with two policies.

    python -m tests.lab.shared_worlds 0 229 >found.tsv    the worlds of these seeds, a line each
    python -m tests.lab.shared_worlds found.tsv           the table of decision 0024

Of a caller's whole time in trouble, and four seconds after it, it is counted what was served of
CRITICAL and DEGRADED with each policy. `mussel` gains if it serves one of the two by five points
more than `layers` does, and the other by at most two less; it loses if it serves one by five less.
Nothing here is a test.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Steps
from sluicegate.lab.rigs.dispatcher import US, EngineSpell, KvCaller, KvRig, KvRun, play

FORMS: Final = ("layers", "mussel")
BEGIN_US: Final = 66 * US  # a latency ratio needs a minute to know what is usual
SHARES: Final = (0.15, 0.2, 0.15, 0.1)  # of the capacity, by class, in calm
AFTER_US: Final = 4 * US
POINTS: Final = 0.05
POINTS_BESIDE: Final = 0.02
_NAMES: Final = "seed dispatchers " + " ".join(
    f"{form}.{name}" for form in FORMS for name in ("CRITICAL", "DEGRADED")
)


class Served(NamedTuple):
    """The shares of CRITICAL and DEGRADED that were served."""

    critical: float
    degraded: float

    def gains(self, before: Served) -> bool:
        """Whether one of them has five points more, and the other has lost at most two."""
        mine = self.critical - before.critical, self.degraded - before.degraded
        return max(mine) >= POINTS and min(mine) >= -POINTS_BESIDE

    def loses(self, before: Served) -> bool:
        """Whether one of them has five points less."""
        return before.critical - self.critical >= POINTS or (
            before.degraded - self.degraded >= POINTS
        )


class SharedWorld(NamedTuple):
    """One world, and when its trouble ends."""

    rig: KvRig
    end_us: int

    def play(self, policy: str, seed: int) -> KvRun:
        """Play it with this policy."""
        settings = replace(self.rig.settings, policy=policy)
        return play(replace(self.rig, settings=settings), seed)

    def served(self, found: KvRun) -> Served:
        """What was served of the two classes that matter most."""
        end_us = self.end_us + AFTER_US
        return Served(found.served(BEGIN_US, end_us, 0), found.served(BEGIN_US, end_us, 1))

    def compare(self, seed: int) -> dict[str, Served]:
        """Play it with each policy."""
        return {form: self.served(self.play(form, seed)) for form in FORMS}


def shared(seed: int) -> SharedWorld:
    """A flood of the lower classes, 1.1 to 5 times what an engine can do that may have slowed."""
    chance = random.Random(seed)
    dispatchers = chance.choice((1, 1, 2, 4, 8, 16))
    slots = chance.choice((2, 4, 8, 16, 32))
    capacity = 10.0 ** chance.uniform(2.0, 2.7)
    work_us = round(slots * US / capacity)
    slow = chance.uniform(1.0, 4.0) if chance.random() < 0.5 else 1.0
    most = chance.uniform(1.1, 5.0) * capacity / slow
    end_us = BEGIN_US + chance.choice((8, 25)) * US
    deadline_us = round(min(max(50_000, work_us * slow * chance.uniform(5, 40)), 5 * US))
    quota_times = chance.uniform(1.1, 2.5) if chance.random() < 0.75 else 0.0
    floods = chance.choice(((3,), (2,), (2, 3)))
    dispatcher = 0 if chance.random() < 0.5 else None
    read_ru = 1.125 + 0.1 * work_us / 1_000
    rest = sum(SHARES[one] for one in Criticality if one not in floods) * capacity
    callers = []
    for member, share in zip(Criticality, SHARES, strict=True):
        calm = share * capacity
        floods_too = member in floods
        per_s = max(calm, (most - rest) / len(floods)) if floods_too else calm
        callers.append(
            KvCaller(
                name=member.name,
                arrivals=Steps(((0, calm), (BEGIN_US, per_s), (end_us, calm))),
                criticality=member,
                deadline_us=deadline_us,
                quota_ru=ceil(quota_times * per_s * read_ru) or 1_000_000,
                dispatcher=dispatcher if floods_too else None,
            )
        )
    rig = KvRig(
        callers=tuple(callers),
        span_us=end_us + AFTER_US + 2 * US,
        settings=KvSettings(places=chance.choice((16, 32, 64, 128, 256))),
        dispatchers=dispatchers,
        slots=slots,
        work_us=work_us,
        even_work=chance.random() < 0.5,
        course=(EngineSpell(BEGIN_US, times=slow), EngineSpell(end_us)),
    )
    return SharedWorld(rig, end_us)


def table(lines: Iterator[str]) -> Iterator[str]:
    """Count who gained and who lost, by dispatchers."""
    found: dict[int, list[Mapping[str, Served]]] = {}
    for line in lines:
        seed, before, *shares = line.split()
        if seed.isdigit():
            pairs = zip(map(float, shares[::2]), map(float, shares[1::2]), strict=True)
            served = dict(zip(FORMS, (Served(*pair) for pair in pairs), strict=True))
            found.setdefault(int(before), []).append(served)
    yield "| dispatchers | worlds | CRITICAL below half with `layers` | `mussel` |"
    yield "|---|---|---|---|"
    for dispatchers, worlds in sorted(found.items()):
        halved = sum(one["layers"].critical < 0.5 for one in worlds)
        gained = sum(one["mussel"].gains(one["layers"]) for one in worlds)
        lost = sum(one["mussel"].loses(one["layers"]) for one in worlds)
        yield f"| {dispatchers} | {len(worlds)} | {halved} | {gained}, {lost} |"


def main(arguments: list[str]) -> None:
    """Play worlds, or count those that were played."""
    write = sys.stdout.write
    if len(arguments) == 1:
        for row in table(iter(Path(arguments[0]).read_text("utf-8").splitlines())):
            write(f"{row}\n")
        return
    begin, end = map(int, arguments)
    write(_NAMES.replace(" ", "\t") + "\n")
    for seed in range(begin, end):
        world = shared(seed)
        found = world.compare(seed)
        shares = "\t".join(f"{share:.4f}" for form in FORMS for share in found[form])
        write(f"{seed}\t{world.rig.dispatchers}\t{shares}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
