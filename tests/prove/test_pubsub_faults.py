"""Account limits while nodes are killed, cut off, late, doubled, changed: 1,000 seeds.

Each seed draws some of what may go wrong. Through it all the account that attempts up to ten times
its limit is held to it, and afterwards neither it nor the one that conforms is worse off.
"""

from __future__ import annotations

import pytest

from sluicegate.lab.random_source import RandomSource
from tests.cluster.faults import (
    BEGIN_S,
    END_S,
    FAIR,
    KINDS,
    LET_GO_S,
    MEMBERS,
    ONE_AT_A_TIME,
    OVER,
    OVER_S,
    PART,
    FaultyCluster,
    play,
)
from tests.prove.seeds import seeds

RECOVERED_S = 4
CHANCE = 0.4  # that a seed has one of `KINDS`


def drawn(seed: int) -> frozenset[str]:
    """While the members change, nothing else happens to nodes."""
    draw = RandomSource(seed).of("kinds").draw
    kinds = frozenset(kind for kind in KINDS if draw() < CHANCE)
    return kinds - set(ONE_AT_A_TIME) if MEMBERS in kinds else kinds


def broken(cluster: FaultyCluster, kinds: frozenset[str]) -> list[str]:
    """What did not hold."""
    after_s = END_S + RECOVERED_S
    # Two seconds for each division, and of those that follow each other at once two are one time:
    # seed 254 has 3.2 s and 1.29 limits, 340 2.1 s.
    above_s, most = (4, 1.4) if PART in kinds else (2, 1.25)
    found = {
        "above 1.5 limits for too long": cluster.above_s(1.5) > above_s,
        "not held": cluster.rate(BEGIN_S, END_S) > most,
        "not held afterwards": not 0.9 <= cluster.rate(after_s, LET_GO_S) <= 1.1,
        "not let go": cluster.refusals(OVER, LET_GO_S + RECOVERED_S, OVER_S) > 0,
        "refused though it conforms": not kinds & set(ONE_AT_A_TIME) and cluster.refusals(FAIR) > 0,
        "refused afterwards": cluster.refusals(FAIR, after_s) > 0,
    }
    return [what for what, is_so in found.items() if is_so]


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1_000, part=3))
def test_an_account_is_held_whatever_goes_wrong(seed: int) -> None:
    kinds = drawn(seed)
    assert broken(play(seed, kinds), kinds) == [], sorted(kinds)


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=3, part=1))
def test_nodes_that_never_hear_each_other_break_it(seed: int) -> None:
    """The control, without any other fault. Some seeds hold who is over, and refuse both."""
    assert broken(play(seed, (), mute=True), frozenset())
