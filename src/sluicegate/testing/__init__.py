"""What Sluicegate's own tests use, for its users' tests too.

A clock moved by hand, chance from a seed, limiters that need no waiting or no counting, a store
that fails when told to, and a suite that any store can be put through. Nothing here asks the real
clock, so a test that uses it gives the same result everywhere, every time; the one exception is the
suite, which names its keys by chance, because a store may remember those of its last run.

`sluicegate.testing.plugin` has fixtures for pytest, `sluicegate.testing.stores` the suite; both
need pytest, and nothing else here does.
"""

from sluicegate.testing.answers import AnswerStore
from sluicegate.testing.chance import SeededChance
from sluicegate.testing.clock import START_US, HandClock
from sluicegate.testing.faults import Faults, FlakyStore
from sluicegate.testing.limiter import admit_all, answering_limiter, hand_limiter, refuse_all

__all__ = [
    "START_US",
    "AnswerStore",
    "Faults",
    "FlakyStore",
    "HandClock",
    "SeededChance",
    "admit_all",
    "answering_limiter",
    "hand_limiter",
    "refuse_all",
]
