"""Single: one book on virtual time, asked one request after the other.

A pair holds two books beside each other and counts what both did. Whoever wants to know more of a
request than that (a simulation of what happens behind the limiter) asks one book and goes on from
its answer. The deciding is that of a pair: the same side, the same clock.

What is asked may depend on the answers, as a retry does; only the instants never go back. An
earlier one is taken as the latest, as a clock that goes back stands still in the limiter too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.books import Rules
from sluicegate.shadow.side import ADMIT, UNASKABLE, Ask, Side
from sluicegate.shadow.virtual import VirtualClock

__all__ = ["ADMIT", "UNASKABLE", "Single"]


@final
class Single:
    """A book without history, and the asks it will be asked, known by their places."""

    __slots__ = ("_clock", "_side")

    def __init__(
        self, rules: Rules, asks: Iterable[Ask], *, mesh: MeshSettings | None = None
    ) -> None:
        settings = MeshSettings(semantics=rules.semantics) if mesh is None else mesh
        if settings.semantics is not rules.semantics:
            remedy = "make the rulebook and the mesh's settings with the same"
            raise BadValue("semantics", rules.semantics.value, remedy)
        self._clock = VirtualClock()
        self._side = Side(rules.book, self._clock, settings)
        for ask in asks:
            self._side.prepare(ask)
        self._side.begin()

    def decide(self, ask: int, at_us: int) -> int:
        """Decide and count: `ADMIT`, k where the k-th rule refuses, or `UNASKABLE`."""
        clock = self._clock
        if at_us > clock.at_us:
            clock.at_us = at_us
        return self._side.decide(ask, clock.at_us)

    def priority(self, ask: int) -> Criticality:
        """How much it matters, as this book settles it."""
        return self._side.prepared[ask].priority

    def rule_id(self, ask: int, code: int) -> str:
        """The rule that a refusal names."""
        return self._side.prepared[ask].rules[code - 1].rule_id
