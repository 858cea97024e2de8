"""Criticality: the class that a caller claims for its work, up to what it may claim.

It never refuses; it sets `request.criticality` before anything acts on it. A class that callers
declare for themselves is worth nothing under stress, when everybody's work is critical. So a table
says the highest class that each caller may have: a claim above it becomes that, a claim below it
stands. Google's "Site Reliability Engineering" (2016) and Netflix ("Enhancing Netflix Reliability
with Service-Level Prioritized Load Shedding", 2024) let a class travel with the request; here it is
settled again at each service, by that service's table.

A claim is the text of the attribute `attribute` if a door has left one, else the request's own
class. A text that names no class is no claim: the request gets `default`, which cannot be CRITICAL.
A caller that is not in the table may claim up to `strangers`, which cannot be CRITICAL either.

A gateway whose limiter was away has let through what a limit would have refused. Where a door says
so in the attribute `uncounted_attribute`, the request is `uncounted` at most, whoever sends it: so
what was counted is served before it, and what is shed is shed from it first.

There is no kernel: a look-up and a comparison. What it settles twice (a chunk that comes back in)
stays as it is. Bound: `callers_max` callers in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, BasePolicy, NothingHeld
from sluicegate.contracts.request import NO_ATTRIBUTES, Request
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges

_BY_NAME: Final = {member.name: member for member in Criticality}
_CLAIM_CHARS_MAX: Final = 32


@final
@dataclass(frozen=True, kw_only=True)
class CriticalitySettings:
    """The highest class that each caller may claim."""

    callers: Mapping[str, Criticality] = field(default_factory=dict)
    strangers: Criticality = DEFAULT_CRITICALITY
    default: Criticality = DEFAULT_CRITICALITY
    attribute: str = "criticality"
    uncounted: Criticality = Criticality.BEST_EFFORT
    uncounted_attribute: str = "uncounted"
    callers_max: int = ranged(1_000_000, 1, 10_000_000)  # as many as rules may name

    def __post_init__(self) -> None:
        check_ranges("criticality", self)
        for name in ("strangers", "default"):
            if getattr(self, name) == Criticality.CRITICAL:
                raise BadValue(
                    f"criticality.{name}",
                    "CRITICAL",
                    "give a lower class, and name in `callers` who may claim CRITICAL",
                )
        if len(self.callers) > self.callers_max:
            raise BadValue(
                "criticality.callers",
                f"{len(self.callers):,} callers",
                f"give at most callers_max, {self.callers_max:,}",
            )
        # Whoever reads settings from a file may bring what the types rule out.
        classes: Mapping[str, object] = self.callers
        for caller, highest in classes.items():
            if not isinstance(highest, Criticality):
                raise BadValue(
                    f"criticality.callers[{caller}]", highest, "give a class of Criticality"
                )


class CriticalityStats(NamedTuple):
    """What was settled, and what came of it."""

    settled: int
    clamped: int  # claimed more than allowed
    unknown: int  # claimed what is no class
    critical: int
    degraded: int
    best_effort: int
    bulk: int


@final
class CriticalityClamp(BasePolicy):
    """Settles the class of each request."""

    __slots__ = (
        "_by_class",
        "_callers",
        "_claim_name",
        "_clamped",
        "_strangers",
        "_uncounted",
        "_uncounted_name",
        "_unknown",
        "settings",
    )

    def __init__(self, settings: CriticalitySettings | None = None) -> None:
        settings = CriticalitySettings() if settings is None else settings
        self.settings = settings
        self._callers = dict(settings.callers)
        self._strangers = settings.strangers
        self._claim_name = settings.attribute
        self._uncounted = settings.uncounted
        self._uncounted_name = settings.uncounted_attribute
        self._by_class = [0, 0, 0, 0]
        self._clamped = self._unknown = 0

    def admit(self, request: Request, now_us: int) -> NothingHeld:
        """Set the class of the request; nothing is refused here."""
        claim = request.criticality
        attributes = request.attributes
        if attributes is not NO_ATTRIBUTES:
            text = attributes.get(self._claim_name)
            if text is not None:
                claim = self._parse_claim(text)
        highest = self._callers.get(request.caller)
        if highest is None:
            highest = self._strangers
        if attributes is not NO_ATTRIBUTES and attributes.get(self._uncounted_name):
            highest = max(highest, self._uncounted)
        if claim < highest:
            self._clamped += 1
            claim = highest
        request.criticality = claim
        self._by_class[claim] += 1
        return NOTHING_HELD

    def replace(self, callers: Mapping[str, Criticality]) -> None:
        """Replace the table."""
        self._callers = dict(callers)

    def stats(self) -> CriticalityStats:
        """Counts since the start."""
        critical, degraded, best_effort, bulk = self._by_class
        return CriticalityStats(
            sum(self._by_class),
            self._clamped,
            self._unknown,
            critical,
            degraded,
            best_effort,
            bulk,
        )

    def _parse_claim(self, text: str) -> Criticality:
        member = None
        if len(text) <= _CLAIM_CHARS_MAX:
            member = _BY_NAME.get(text.strip().upper().replace("-", "_"))
        if member is None:
            self._unknown += 1
            return self.settings.default
        return member
