"""Drill: a claim about the dispatcher that is tried on real processes, and what a try has found.

A drill plays for some seconds and leaves an outcome: figures, bars that they met or missed, curves
for its picture, and why the run is void if it is. A void run has neither met nor missed anything.
A control (the same with the defence taken out) must miss: its bars are `expected` to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.charts import Panel

LAYERS: Final = "layers"
GENERATION_ONE: Final = "generation-one"
NONE: Final = "none"
COSTS_UNLEARNED: Final = "costs-unlearned"  # the layers, charged by what is said of a request
POLICIES: Final = (LAYERS, GENERATION_ONE, NONE, COSTS_UNLEARNED)
NO_CONTROLS: Final = (LAYERS,)  # whose targets are to be met


def policy_flags(policy: str) -> tuple[str, ...]:
    """Return the dispatcher's flags."""
    if policy == COSTS_UNLEARNED:
        return ("--policy", LAYERS, "--learn", "off")
    return ("--policy", policy)


@final
@dataclass(frozen=True, slots=True)
class DrillBar:
    """A figure against its bound."""

    claim: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""
    must_miss: bool = False  # a control: the defence is taken out

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise BadValue(f"bar {self.claim}", None, "give at_most or at_least, and not both")

    @property
    def bound(self) -> float:
        """The bound, whichever side it is on."""
        bound = self.at_least if self.at_most is None else self.at_most
        assert bound is not None
        return bound

    @property
    def met(self) -> bool:
        """Whether it does; infinity and NaN do not."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.value >= self.bound

    @property
    def as_expected(self) -> bool:
        """Whether it was met, or missed by a control."""
        return self.met is not self.must_miss


@final
@dataclass(slots=True)
class DrillOutcome:
    """What a run of a drill measured."""

    figures: dict[str, float] = field(default_factory=dict)
    bars: list[DrillBar] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what a reader should know besides

    def add_bar(
        self,
        claim: str,
        value: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        unit: str = "",
        must_miss: bool = False,
    ) -> None:
        """Hold a figure against a bound."""
        self.bars.append(DrillBar(claim, value, at_most, at_least, unit, must_miss))

    def add_errors(self, prefix: str, counts: Mapping[str, int]) -> None:
        """Add a figure for each error or reason of a refusal."""
        self.figures |= {f"{prefix}{error}": count for error, count in counts.items()}

    @property
    def passed(self) -> bool:
        """Whether every bar came as expected, in a run that is not void."""
        return not self.void and all(bar.as_expected for bar in self.bars)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSetting:
    """How a drill is to be played."""

    seconds: float
    policy: str = LAYERS
    seed: int = 0
    progress: Callable[[str], object] = lambda text: None

    def us(self, share: float = 1.0) -> int:
        """That share of the time it has."""
        return int(self.seconds * share * 1e6)


class Drill(NamedTuple):
    """A claim that can be tried."""

    name: str
    title: str
    why: str
    seconds: float  # for how long each of its loads is sent by default
    seconds_min: float
    play: Callable[[DrillSetting], DrillOutcome]
    policies: tuple[str, ...] = (LAYERS,)
