"""Priority shed: admit by level, and move the level along the histogram of what comes.

Source: Zhou et al., "Overload Control for Scaling WeChat Microservices" (2018), which calls it
DAGOR. Every unit has a *level*: its class (criticality) times `cohorts`, plus the cohort of its
user; a smaller level is more important. One mark separates what is admitted from what is not, so
classes go one after the other, and inside the class that is being shed one cohort of users after
the other. At the end of each window the mark moves, so that next time there would be admitted

    overloaded:        (1 - cut) * what the mark admits now            cut   = 5%
    not overloaded:    what the mark admits now + raise * all          raise = 1%

Whether it was overloaded is told (`tick`); the paper takes a mean queueing time above 20 ms in a
window of 1 s or 2,000 units.

What was changed. In the paper the mark stands between two levels; here it may stand inside one, in
thousandths, and admits that part of it, by the draw of each unit. Else a level that holds much of
the traffic (a service with one caller) is a gate that slams: 32 workers with thrice the work of one
caller did 111 a second of the 1,067 that they can, and 1,087 now, work being uneven. The paper
counts each window anew; here the counts decay (`keep_permille` of each is kept), so that a short or
quiet window does not throw the mark about; 0 is the paper's form.
It counts units; here each counts its `cost`. All that comes is counted, admitted or not, in a
histogram with a place for every level: a sample of the last thousand units, which others use, holds
ten of a class that is one in a hundred of what comes. `levels_kept` are never shed, so a wrong
signal cannot shut the door. While nothing comes, the mark opens by its raise of all levels.

`floor` lets that share of what is above the mark pass, outside hard overload, so that no level
starves unseen. It is the same for all levels, with the draw of each unit; so a more important unit
is never refused where a less important one with the same draw is admitted.

The cohort of a user comes from a hash that changes with the hour (`cohort`): all services agree on
it without talking, and nobody is unlucky for long.

A clock is not needed here. How fast it moves is the length of the caller's window: at tenfold
overload, evenly spread, it takes 45 overloaded windows to come down to a tenth and 91 others to
open again.

Not good at: a storm that pauses (when nothing comes above the mark, one quiet window opens it
wholly); callers that declare their own class (clamp it before); an overload whose cause is not the
number of units.

Cost: O(1) a unit; O(levels) a window. Bounds: 1 to `CLASSES_MAX` classes, 1 to `COHORTS_MAX`
cohorts, one integer a level.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, final

from sluicegate.kernels.bounds import within

CLASSES_MAX: Final = 64
COHORTS_MAX: Final = 1_024
PERMILLE: Final = 1_000

# A unit of cost counts this much, so that decay keeps a fraction of it.
_UNIT: Final = 1_024


def cohort(user: str, hour: int, cohorts: int = 128) -> int:
    """The cohort of a user in this hour: the same in every process, another one the next hour."""
    within("cohorts", cohorts, 1, COHORTS_MAX)
    digest = blake2b(f"{hour}:{user}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % cohorts


def level_of(criticality: int, cohort: int, cohorts: int = 128) -> int:
    """The level of a unit; criticality 0 is the most important class."""
    return criticality * cohorts + cohort


def move_mark(
    counts: list[int], mark: int, overloaded: bool, cut_permille: int, raise_permille: int
) -> int:
    """The new mark over `counts` by level, in thousandths of a level."""
    levels = len(counts)
    whole = mark // PERMILLE
    admitted = counts[whole] * (mark % PERMILLE) if whole < levels else 0
    for level in range(whole):
        admitted += counts[level] * PERMILLE
    if overloaded:
        return _lower_mark(counts, mark, admitted * cut_permille)
    total = 0
    for count in counts:
        total += count
    if total == 0:
        return min(levels, whole + max(1, levels * raise_permille // PERMILLE)) * PERMILLE
    return _raise_mark(counts, mark, total * PERMILLE * raise_permille)


def _lower_mark(counts: list[int], mark: int, less: int) -> int:
    """The highest mark that admits `less` less, in millionths of a unit."""
    while less > 0 and mark > 0:
        level = (mark - 1) // PERMILLE
        count = counts[level] * PERMILLE  # what a thousandth of this level is
        part = mark - level * PERMILLE
        if count * part > less:
            return mark - (less + count - 1) // count
        less -= count * part
        mark = level * PERMILLE
    return mark


def _raise_mark(counts: list[int], mark: int, more: int) -> int:
    """The lowest mark that admits `more` more, in millionths of a unit."""
    end = len(counts) * PERMILLE
    while more > 0 and mark < end:
        level = mark // PERMILLE
        count = counts[level] * PERMILLE
        part = (level + 1) * PERMILLE - mark
        if count * part > more:
            return mark + (more + count - 1) // count
        more -= count * part
        mark = (level + 1) * PERMILLE
    return mark


@final
class PriorityShed:
    """One mark over all levels, and the histogram by which it moves."""

    __slots__ = (
        "_counts",
        "_cut_permille",
        "_floor",
        "_hard",
        "_keep_permille",
        "_levels_kept",
        "_raise_permille",
        "mark",
    )

    def __init__(
        self,
        *,
        classes: int = 4,
        cohorts: int = 128,
        cut_permille: int = 50,
        raise_permille: int = 10,
        keep_permille: int = 500,
        levels_kept: int = 1,
        floor: float = 0.0,
    ) -> None:
        within("classes", classes, 1, CLASSES_MAX)
        within("cohorts", cohorts, 1, COHORTS_MAX)
        within("cut_permille", cut_permille, 1, PERMILLE)
        within("raise_permille", raise_permille, 1, PERMILLE)
        if not 0 <= keep_permille < PERMILLE:
            raise ValueError(f"keep_permille must be from 0 to {PERMILLE - 1}, not {keep_permille}")
        if not 0 <= levels_kept <= classes * cohorts:
            raise ValueError(
                f"levels_kept must be from 0 to all {classes * cohorts}, not {levels_kept}"
            )
        if not 0.0 <= floor < 1.0:
            raise ValueError(f"floor must be from 0 to below 1, not {floor}")
        self._counts = [0] * (classes * cohorts)
        self._cut_permille = cut_permille
        self._raise_permille = raise_permille
        self._keep_permille = keep_permille
        self._levels_kept = levels_kept
        self._floor = floor
        self._hard = False
        self.mark = classes * cohorts * PERMILLE  # thousandths of a level

    @property
    def threshold(self) -> int:
        """How many levels are admitted whole."""
        return self.mark // PERMILLE

    def admits(self, level: int) -> bool:
        """Whether all of this level is admitted."""
        return (level + 1) * PERMILLE <= self.mark

    def admit(self, level: int, draw: float, cost: int = 1) -> bool:
        """Count a unit of this level, and say whether it is admitted.

        The draw is for the part of a level and the floor; it is only looked at when not all of the
        level is admitted.
        """
        if not 0 <= level < len(self._counts):
            raise ValueError(f"level must be from 0 to {len(self._counts) - 1}, not {level}")
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        self._counts[level] += cost * _UNIT
        part = self.mark - level * PERMILLE
        if part >= PERMILLE:
            return True
        if not 0.0 <= draw < 1.0:
            raise ValueError(f"draw must be from 0 to below 1, not {draw}")
        if part > 0 and draw * PERMILLE < part:
            return True
        return not self._hard and draw < self._floor

    def tick(self, overloaded: bool, hard: bool = False) -> int:
        """End a window: move the mark, and let the counts decay. The levels admitted whole."""
        counts = self._counts
        mark = move_mark(counts, self.mark, overloaded, self._cut_permille, self._raise_permille)
        self.mark = max(mark, self._levels_kept * PERMILLE)
        self._hard = hard
        keep_permille = self._keep_permille
        for level, count in enumerate(counts):
            if count > 0:
                counts[level] = count * keep_permille // PERMILLE
        return self.threshold
