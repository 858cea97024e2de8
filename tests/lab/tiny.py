"""A scenario of a user's own, as small as one can be. Nothing here is a test.

Its service does `speed` of what is asked; the seed adds a little, so that seeds differ.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from threading import Event
from typing import Final

from sluicegate.lab.goals import Goal
from sluicegate.lab.scenario import (
    Candidate,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)


@dataclass(frozen=True)
class Tiny:
    """So much is asked, for so long."""

    load: float
    span_us: int = 2_000_000
    broken: bool = False


def good(speed: float) -> Candidate[Tiny, float]:
    """Answers `speed` of what is asked."""
    return Candidate(lambda rig, seed: speed + seed / 1000)


def bad(rig: Tiny, seed: int) -> float:
    """A bug."""
    raise LookupError("no such thing")


def dies(rig: Tiny, seed: int) -> float:
    """Takes its process with it."""
    os._exit(3)


def sleeps(rig: Tiny, seed: int) -> float:
    """Says who it is, and does not end."""
    os.write(1, f"{os.getpid()}\n".encode())  # in one piece: another does the same
    Event().wait(600)
    return 0.0


def measure(rig: Tiny, result: float) -> Figures:
    """The share, and a time that is never over for those who fail."""
    return {"share": result, "p99_ms": 10 / result if result > 0.5 else inf, "zero": 0.0}


def curves(rig: Tiny, result: float) -> Curves:
    """A straight line, of more points than anybody needs."""
    return {
        "offered_per_s": [(at / 100, rig.load) for at in range(2_000)],
        "good_per_s": [(at / 100, rig.load * result) for at in range(2_000)],
    }


SCENARIO: Final = Scenario(
    number=77,
    name="tiny",
    title="A tiny claim, with <angles> & all",
    why="It is quick.",
    rigs={"1x": Tiny(1.0), "2x": Tiny(2.0)},
    candidates={
        "ours": good(0.9),
        "without": good(0.2),
        "other": Candidate(lambda rig, seed: 0.6),
        "real": Candidate(lambda rig, seed: 0.85),
    },
    ours="ours",
    must_fail=("without",),
    goals=(Goal(figure="share", at_least=0.8), Goal(figure="p99_ms", at_most=12, cases=("2x",))),
    measure=measure,
    curves=curves,
    columns=("share", "p99_ms"),
    plots=(PlotSpec("Over time", "good_per_s", "a second"),),
    scale="a millionth of the real one",
)
