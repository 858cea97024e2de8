"""Search: seed after seed, in one process or several; what breaks is shrunk and written down.

Of each invariant the first few findings are shrunk, for the rest are mostly the same once more; of
the others the seed is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.clock import Clock
from sluicegate.lab.hunt.draws import draw_setup
from sluicegate.lab.hunt.invariants import Broken
from sluicegate.lab.hunt.setup import Setup, written
from sluicegate.lab.hunt.shrink import TRIES_MAX, shrink
from sluicegate.lab.hunt.stages import broken_by

SHRUNK_MAX: Final = 2  # of each invariant
AHEAD: Final = 4  # seeds given out for each process

# A seed, what it broke.
Played: TypeAlias = tuple[int, list[Broken]]


class Found(NamedTuple):
    """One broken invariant: by which seed, how, and the small setup that breaks it too."""

    seed: int
    broken: Broken
    shrunk: Setup | None
    file: Path | None


def play_seed(seed: int) -> Played:
    """One seed's setup, played and judged."""
    return seed, broken_by(draw_setup(seed))


def played(seeds: Iterable[int], jobs: int) -> Iterator[Played]:
    """All seeds, each as it ends."""
    if jobs == 1:
        for seed in seeds:
            yield play_seed(seed)
        return
    left = iter(seeds)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[Played]] = set()
        try:
            while True:
                while len(running) < AHEAD * jobs:
                    given = next(left, None)
                    if given is None:
                        break
                    running.add(pool.submit(play_seed, given))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def same(invariant: str) -> Callable[[Setup], bool]:
    """Whether a setup breaks that invariant."""
    return lambda setup: any(broken.invariant == invariant for broken in broken_by(setup))


def write_down(seed: int, broken: Broken, out: Path | None, *, tries_max: int = TRIES_MAX) -> Found:
    """Shrink what a seed broke, and write it to a file that can be played again."""
    small = shrink(draw_setup(seed), same(broken.invariant), tries_max=tries_max).setup
    sentence = next(
        (one.sentence for one in broken_by(small) if one.invariant == broken.invariant),
        broken.sentence,
    )
    file = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        words = "".join(letter if letter.isalnum() else "-" for letter in broken.invariant)
        file = out / f"{words}-{seed}.json"
        file.write_text(written(small, f"{broken.invariant}: {sentence}"), encoding="utf-8")
    return Found(seed, Broken(broken.invariant, sentence), small, file)


def until(seeds: Iterable[int], clock: Clock, minutes: float | None) -> Iterator[int]:
    """Seeds until the time is over."""
    end_us = None if minutes is None else clock.now_us() + int(minutes * 60_000_000)
    for seed in seeds:
        if end_us is not None and clock.now_us() >= end_us:
            return
        yield seed
