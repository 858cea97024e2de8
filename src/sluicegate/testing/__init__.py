"""What Sluicegate's own tests use, for its users' tests too.

A clock moved by hand, chance from a seed, limiters that need no waiting or no counting, a switch
that turns retries off, a store that fails on demand, and a suite for any store. Nothing here reads
the real clock, so a test that uses it has the same result everywhere. The suite is the exception:
it names its keys randomly, because a store may remember those of its last run.

`sluicegate.testing.plugin` has fixtures for pytest, `sluicegate.testing.stores` the suite; both
need pytest, and nothing else here does.
"""

from sluicegate.testing.answers import AnswerStore
from sluicegate.testing.chance import SeededChance
from sluicegate.testing.clock import START_US, HandClock
from sluicegate.testing.faults import Faults, FlakyStore
from sluicegate.testing.limiter import admit_all, answering_limiter, hand_limiter, refuse_all
from sluicegate.testing.resilience import set_testing

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
    "set_testing",
]
