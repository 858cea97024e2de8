"""Canary: when a version that is in force for some callers may be in force for more.

A pure core: what is known goes in, what is to be done comes out. A step is held for a time and for
a least number of CRITICAL decisions; then the next one is taken, if CRITICAL is not refused more
than under the live version by more than the setting, and if no node began to fail. What is worse
is taken back as soon as that can be told, without waiting for the time.

Shares are of 10,000. Rates are compared in whole numbers, so the bound is exact: what is worse by
just the setting goes on.

Tally: what a fleet's reports say of a canary since its step began.

A node counts decisions by version and class, from when it took that version up. So what is added is
what each of a node's counts has risen by since it was last heard of; one that has fallen has begun
anew. Of a node that was not heard of before, nothing is known of what it counted within the step,
and nothing is added until its next report. A step may so take longer, and is never cut short.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import NodeReport

WHOLE: Final = 10_000
_MINUTE_US: Final = 60_000_000
_STEPS_MAX: Final = 100

HOLD: Final = "hold"
ADVANCE: Final = "advance"
FINISH: Final = "finish"  # make it live
ROLL_BACK: Final = "roll back"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySettings:
    """How a canary grows, and what ends it."""

    steps: tuple[int, ...] = (100, 500, 2_500, WHOLE)  # 1, 5, 25 and 100 percent
    hold_us: int = 5 * _MINUTE_US  # each step, at least
    critical_min: int = 1_000  # CRITICAL decisions under the canary in each step, at least
    worse_max: int = 500  # of 10,000 CRITICAL decisions, refused more than under live
    failing_max: int = 0  # nodes that began to fail since the canary began
    stalled_us_max: int = 24 * 60 * _MINUTE_US  # a step without enough decisions; then it ends
    auto: bool = True  # grow by itself; taking back by itself is always on

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.steps, self.steps[1:], strict=False))
        if not (0 < len(self.steps) <= _STEPS_MAX and rising and self.steps[0] > 0):
            raise BadValue("canary.steps", self.steps, "give rising shares of 10,000")
        if self.steps[-1] != WHOLE:
            raise BadValue("canary.steps", self.steps, f"end with {WHOLE}: everybody")
        if self.hold_us < 0 or self.stalled_us_max <= self.hold_us:
            raise BadValue("canary.hold_us", self.hold_us, "give less than stalled_us_max")
        if self.critical_min < 1:
            raise BadValue("canary.critical_min", self.critical_min, "give at least 1")
        if not 0 <= self.worse_max <= WHOLE:
            raise BadValue("canary.worse_max", self.worse_max, "give 0 to 10,000 of 10,000")
        if self.failing_max < 0:
            raise BadValue("canary.troubled_max", self.failing_max, "give 0 or more")


class CanaryCounts(NamedTuple):
    """What the fleet has seen since the step began."""

    critical: int  # decisions on CRITICAL work under the canary's version
    refused: int  # of these
    live_critical: int
    live_refused: int
    failing: int  # nodes that fail now and did not when the canary began


class CanaryState(NamedTuple):
    """A canary that is under way: its share, and since when it has that."""

    version: int
    share: int
    since_us: int


class CanaryAction(NamedTuple):
    """What is to be done, and why in a sentence."""

    kind: str
    reason: str = ""


def step(
    state: CanaryState, figures: CanaryCounts, now_us: int, settings: CanarySettings
) -> tuple[CanaryState, CanaryAction]:
    """What becomes of a canary, judged by what is known now."""
    if figures.failing > settings.failing_max:
        return state, CanaryAction(
            ROLL_BACK,
            f"{figures.failing} nodes began to fail since the canary began "
            f"(at most {settings.failing_max})",
        )
    held_us = now_us - state.since_us
    if figures.critical < settings.critical_min:
        if held_us >= settings.stalled_us_max:
            return state, CanaryAction(
                ROLL_BACK,
                f"only {figures.critical:,} CRITICAL decisions in {held_us // _MINUTE_US:,} "
                f"minutes at a share of {percent(state.share)} (at least "
                f"{settings.critical_min:,})",
            )
        return state, CanaryAction(HOLD)
    if is_worse(figures, settings.worse_max):
        return state, CanaryAction(
            ROLL_BACK, f"{describe(figures)}; more by over {percent(settings.worse_max)}"
        )
    if held_us < settings.hold_us or not settings.auto:
        return state, CanaryAction(HOLD)
    share = next((one for one in settings.steps if one > state.share), WHOLE)
    kind = FINISH if share == WHOLE else ADVANCE
    return CanaryState(state.version, share, now_us), CanaryAction(kind, describe(figures))


def is_worse(figures: CanaryCounts, worse_max: int) -> bool:
    """Whether the canary refuses a larger part of CRITICAL than live does, by more than that."""
    # refused / critical - live_refused / live_critical > worse_max / WHOLE, without a division.
    live = max(figures.live_critical, 1)  # no decision under live is none refused there
    more = figures.refused * live - figures.live_refused * figures.critical
    return more * WHOLE > worse_max * figures.critical * live


def describe(figures: CanaryCounts) -> str:
    """The figures as a sentence."""
    return (
        f"{figures.refused:,} of {figures.critical:,} CRITICAL decisions refused under the canary, "
        f"{figures.live_refused:,} of {figures.live_critical:,} under live"
    )


def percent(share: int) -> str:
    """A share of 10,000 as people write it."""
    return f"{share / 100:g}%"


_Pair: TypeAlias = tuple[int, int]  # decisions, and how many of them were refusals
_Counts: TypeAlias = tuple[_Pair, _Pair]  # under the canary's version, and under live

CLASS: Final = Criticality.CRITICAL.name


def count_name(version: int, criticality: str = CLASS) -> str:
    """Under which name a report has the decisions of a class under a version."""
    return f"{version}/{criticality}"


@final
class CanaryTally:
    """Adds up reports for one step of a canary, against the version that is live beside it.

    `before` is the tally of the step before, which knows what the nodes had counted by then.
    """

    __slots__ = ("_failing", "_names", "_nodes", "_sums", "state")

    def __init__(
        self,
        state: CanaryState,
        live: int,
        failing: Iterable[str] = (),
        *,
        before: CanaryTally | None = None,
    ) -> None:
        self.state = state
        self._names = (count_name(state.version), count_name(live))
        # By node, the decisions and refusals under each of the two versions.
        same = before is not None and before._names == self._names
        self._nodes: dict[str, _Counts] = dict(before._nodes) if before is not None and same else {}
        self._sums = [[0, 0], [0, 0]]
        self._failing = frozenset(failing)

    def figures(self, reports: Iterable[NodeReport], fresh_us: int) -> CanaryCounts:
        """All that was seen so far; a report from before `fresh_us` says nothing of failures."""
        failing = 0
        for report in reports:
            self._add(report)
            if report.failure and report.at_us >= fresh_us and report.node not in self._failing:
                failing += 1
        (critical, refused), (live_critical, live_refused) = self._sums
        return CanaryCounts(critical, refused, live_critical, live_refused, failing)

    def _add(self, report: NodeReport) -> None:
        now = (_pair(report, self._names[0]), _pair(report, self._names[1]))
        before = self._nodes.get(report.node, now)
        for sums, new, old in zip(self._sums, now, before, strict=True):
            anew = new[0] < old[0] or new[1] < old[1]
            sums[0] += new[0] - (0 if anew else old[0])
            sums[1] += new[1] - (0 if anew else old[1])
        self._nodes[report.node] = now


def failing_nodes(reports: Iterable[NodeReport], fresh_us: int) -> tuple[str, ...]:
    """The nodes that report a failure now."""
    return tuple(one.node for one in reports if one.failure and one.at_us >= fresh_us)


def _pair(report: NodeReport, name: str) -> _Pair:
    decisions, refused, *_ = (*report.counts.get(name, ()), 0, 0)
    return decisions, refused
