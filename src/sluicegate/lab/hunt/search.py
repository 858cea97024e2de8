"""Search: all stages by name, and seed after seed played on them, in one process or several.

What breaks is shrunk and written to a file. Of each invariant the first few findings are shrunk,
for the rest are mostly the same once more; of the others only the seed is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.hunt.client import play_client
from sluicegate.lab.hunt.cluster import play_cluster
from sluicegate.lab.hunt.dispatcher import play_dispatcher
from sluicegate.lab.hunt.draws import draw_setup
from sluicegate.lab.hunt.invariants import check
from sluicegate.lab.hunt.reads import play_reads
from sluicegate.lab.hunt.record import HuntRecord, Violation
from sluicegate.lab.hunt.server import play_server
from sluicegate.lab.hunt.setup import Setup, render
from sluicegate.lab.hunt.shrink import TRIES_MAX, shrink
from sluicegate.lab.hunt.stage import StagePlay, play

STAGES: Final[Mapping[str, StagePlay]] = {
    "server": play_server,
    "reads": play_reads,
    "client": play_client,
    "cluster": play_cluster,
    "dispatcher": play_dispatcher,
}

SHRUNK_MAX: Final = 2  # of each invariant
AHEAD: Final = 4  # seeds given out for each process

SeedViolations: TypeAlias = tuple[int, list[Violation]]


class HuntFinding(NamedTuple):
    """One broken invariant: by which seed, how, and the file of a small setup that breaks it."""

    seed: int
    broken: Violation
    file: Path | None


def play_setup(setup: Setup) -> HuntRecord:
    """Play a setup on its stage."""
    stage = STAGES.get(setup.stage)
    if stage is None:
        raise BadValue("stage", setup.stage, f"give one of {', '.join(STAGES)}")
    return play(stage, setup)


def violations_of(setup: Setup) -> list[Violation]:
    """Play a setup, and return what broke."""
    return check(setup, play_setup(setup))


def play_seed(seed: int) -> SeedViolations:
    """One seed's setup, played and judged."""
    return seed, violations_of(draw_setup(seed))


def play_seeds(seeds: Iterable[int], jobs: int) -> Iterator[SeedViolations]:
    """All seeds, each as it ends."""
    if jobs == 1:
        for seed in seeds:
            yield play_seed(seed)
        return
    left = iter(seeds)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[SeedViolations]] = set()
        try:
            while True:
                while len(running) < AHEAD * jobs:
                    seed_next = next(left, None)
                    if seed_next is None:
                        break
                    running.add(pool.submit(play_seed, seed_next))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def breaks(invariant: str) -> Callable[[Setup], bool]:
    """Whether a setup breaks that invariant."""
    return lambda setup: any(broken.invariant == invariant for broken in violations_of(setup))


def write_down(
    seed: int, broken: Violation, out: Path | None, *, tries_max: int = TRIES_MAX
) -> HuntFinding:
    """Shrink what a seed broke, and write it to a file that can be played again."""
    small = shrink(draw_setup(seed), breaks(broken.invariant), tries_max=tries_max).setup
    sentence = next(
        (one.sentence for one in violations_of(small) if one.invariant == broken.invariant),
        broken.sentence,
    )
    file = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        words = "".join(letter if letter.isalnum() else "-" for letter in broken.invariant)
        file = out / f"{words}-{seed}.json"
        file.write_text(render(small, f"{broken.invariant}: {sentence}"), encoding="utf-8")
    return HuntFinding(seed, Violation(broken.invariant, sentence), file)


def until(seeds: Iterable[int], clock: Clock, minutes: float | None) -> Iterator[int]:
    """Seeds until the time is over."""
    end_us = None if minutes is None else clock.now_us() + int(minutes * 60_000_000)
    for seed in seeds:
        if end_us is not None and clock.now_us() >= end_us:
            return
        yield seed
