"""Coalescing faults: one fetch for many must not become one failure for many.

Who shares a fetch shares what happens to it, unless somebody thought of it: the first reader is
cancelled and takes the others with him, an error is answered by as many new fetches as there are
readers, a fetch that hangs stays for ever. The goals: whatever happens, nothing is left in memory,
the store is asked at most twice, and nobody is cancelled through somebody else; with ten thousand
who wait as with a hundred. And a fetch that hangs does not hold those who try again: nine of ten
are answered with their second try, by another fetch.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.lab.baselines.single_flight import SingleFlight
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.shared_fetch import (
    CANCEL,
    ERROR,
    TIMEOUT,
    Fetch,
    FetchFaults,
    candidate,
    curves,
    measure,
)
from sluicegate.lab.scenario import OVER_CASES, PlotSpec, Scenario
from sluicegate.policies.coalesce import Coalesce, CoalesceSettings, Flight

PATIENT: Final = CoalesceSettings(overdue_us=0)


@final
class CoalescedFetch:
    """`coalesce` with its defaults."""

    def __init__(
        self, clock: Clock, fetch: Fetch, settings: CoalesceSettings | None = None
    ) -> None:
        self.policy: Coalesce[int] = Coalesce(settings or CoalesceSettings())
        self._clock = clock
        self._fetch = fetch

    def share(self, request: Request) -> Awaitable[int]:
        """The fetch in the air, or a new one."""
        return self.policy.share(request.key, request, self._clock, self._load)

    async def _load(self, flight: Flight[int]) -> int:
        return await self._fetch(flight.key)


@final
class UnsharedFetch:
    """Without `coalesce`: each fetches for himself."""

    def __init__(self, clock: Clock, fetch: Fetch) -> None:
        self._fetch = fetch

    def share(self, request: Request) -> Awaitable[int]:
        """A fetch of one's own."""
        return self._fetch(request.key)


SCENARIO: Final = Scenario(
    number=13,
    name="coalescing",
    title="A shared fetch fails, hangs, or loses whoever began it",
    why="What is shared to protect the store must not share the failures of its readers.",
    rigs={
        "error": FetchFaults(fault=ERROR),
        "cancel": FetchFaults(fault=CANCEL),
        "timeout": FetchFaults(fault=TIMEOUT),
        "crowd-error": FetchFaults(fault=ERROR, readers=10_000, episodes=1),
        "crowd-cancel": FetchFaults(fault=CANCEL, readers=10_000, episodes=1),
        "crowd-timeout": FetchFaults(fault=TIMEOUT, readers=10_000, episodes=1),
    },
    candidates={
        "coalesce": candidate(CoalescedFetch),
        "without-relief": candidate(lambda clock, fetch: CoalescedFetch(clock, fetch, PATIENT)),
        "without-coalesce": candidate(UnsharedFetch),
        "single-flight": candidate(lambda _, fetch: SingleFlight(fetch)),
        "shielded-flight": candidate(lambda _, fetch: SingleFlight(fetch, shielded=True)),
    },
    ours="coalesce",
    must_fail=("single-flight", "shielded-flight", "without-relief", "without-coalesce"),
    goals=(
        Goal(figure="leaked", at_most=0.0),
        Goal(figure="calls_max", at_most=2.0),
        Goal(figure="lost", at_most=0.0),
        Goal(figure="answered", at_least=1.0, cases=("error", "cancel")),
        Goal(figure="answered", at_least=1.0, cases=("crowd-error", "crowd-cancel")),
        Goal(figure="answered", at_least=0.9, cases=("timeout", "crowd-timeout")),
    ),
    measure=measure,
    curves=curves,
    columns=("leaked", "calls_max", "lost", "answered", "late"),
    plots=(
        PlotSpec("Fetches that the store sees", ("calls_max",), OVER_CASES, "calls", log_y=True),
        PlotSpec("Readers cancelled by another's end", ("lost",), OVER_CASES, "readers"),
    ),
)
