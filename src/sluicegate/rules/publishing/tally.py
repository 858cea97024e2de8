"""Tally: what a fleet's reports say of a canary since its step began.

A node counts decisions by version and class, from when it took that version up. So what is added is
what each of a node's counts has risen by since it was last heard of; one that has fallen has begun
anew. Of a node that was not heard of before, nothing is known of what it counted within the step,
and nothing is added until its next report. A step may so take longer, and is never cut short.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.publishing.canary import CanaryState, Figures

_Pair: TypeAlias = tuple[int, int]  # decisions, and how many of them were refusals
_Counts: TypeAlias = tuple[_Pair, _Pair]  # under the canary's version, and under live

CLASS: Final = Criticality.CRITICAL.name


def count_name(version: int, criticality: str = CLASS) -> str:
    """Under which name a report has the decisions of a class under a version."""
    return f"{version}/{criticality}"


@final
class Tally:
    """Adds up reports for one step of a canary, against the version that is live beside it.

    `before` is the tally of the step before, which knows what the nodes had counted by then.
    """

    __slots__ = ("_heard", "_names", "_sums", "_troubled", "state")

    def __init__(
        self,
        state: CanaryState,
        live: int,
        troubled: Iterable[str] = (),
        *,
        before: Tally | None = None,
    ) -> None:
        self.state = state
        self._names = (count_name(state.version), count_name(live))
        # By node, the decisions and refusals under each of the two versions.
        same = before is not None and before._names == self._names
        self._heard: dict[str, _Counts] = dict(before._heard) if before is not None and same else {}
        self._sums = [[0, 0], [0, 0]]
        self._troubled = frozenset(troubled)

    def figures(self, reports: Iterable[NodeReport], fresh_us: int) -> Figures:
        """All that was seen so far; a report from before `fresh_us` says nothing of trouble."""
        troubled = 0
        for report in reports:
            self._add(report)
            if report.trouble and report.at_us >= fresh_us and report.node not in self._troubled:
                troubled += 1
        (critical, refused), (live_critical, live_refused) = self._sums
        return Figures(critical, refused, live_critical, live_refused, troubled)

    def _add(self, report: NodeReport) -> None:
        now = (_pair(report, self._names[0]), _pair(report, self._names[1]))
        before = self._heard.get(report.node, now)
        for sums, new, old in zip(self._sums, now, before, strict=True):
            anew = new[0] < old[0] or new[1] < old[1]
            sums[0] += new[0] - (0 if anew else old[0])
            sums[1] += new[1] - (0 if anew else old[1])
        self._heard[report.node] = now


def in_trouble(reports: Iterable[NodeReport], fresh_us: int) -> tuple[str, ...]:
    """The nodes that have trouble now."""
    return tuple(one.node for one in reports if one.trouble and one.at_us >= fresh_us)


def _pair(report: NodeReport, name: str) -> _Pair:
    asked, refused, *_ = (*report.counts.get(name, ()), 0, 0)
    return asked, refused
