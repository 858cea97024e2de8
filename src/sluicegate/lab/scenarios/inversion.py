"""Inversion: CRITICAL work that shares something with BULK does not wait like BULK.

A queue by class is not enough. A critical read that joins a fetch of a crawler's stands in line
with the crawler; a payment that needs the lock of a compaction waits until that has had its turn,
and is done. Priority has to pass on: a fetch that matters more is moved in the queue while it
waits, and a long job lets go of its lock after each chunk, for whoever matters most. The goal is
that CRITICAL, with BULK asking for more than all workers can do, is hardly slower than alone.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.inversion import (
    LOCK,
    READ,
    Inversion,
    candidate,
    chain,
    fifo,
    measure,
    naive,
    without_chunks,
    without_raise,
)
from sluicegate.lab.scenario import AS_BARS, PlotSpec, Scenario

SCENARIO: Final = Scenario(
    number=8,
    name="inversion",
    title="Priority inversion: a shared read, and a lock that is held for long",
    why="What matters must not wait for what does not, not even by a detour.",
    rigs={
        "shared read": Inversion(shared=READ, names=400),
        "lock": Inversion(shared=LOCK, names=64),
    },
    candidates={
        "chain": candidate(chain),
        "without-raise": candidate(without_raise),
        "without-chunks": candidate(without_chunks),
        "naive": candidate(naive),
        "fifo": candidate(fifo),
    },
    ours="chain",
    must_fail=("naive", "without-chunks"),
    goals=(Goal(figure="p99_ratio", at_most=1.2),),
    measure=measure,
    columns=("p99_ratio", "p99_ms", "p99_alone_ms", "success", "bulk_per_s"),
    plots=(PlotSpec("CRITICAL beside BULK, over alone", ("p99_ratio",), AS_BARS, "times the p99"),),
    scale="half the workers of the other rigs; jobs of 100 ms under 64 locks",
)
