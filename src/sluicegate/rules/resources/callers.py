"""CallerRules: what a service's owner says of those who call it, each by name.

    names       the highest class that a caller may claim
    quotas      a limit of its own on everything it asks for, beside the rules for what it asks
    penalties   what it asks for costs it so many times as much, until that is taken away
    pins        no change of rules may newly refuse it; see the shadow validation

They stand in the rulebook like any rule, and change as rules do: on every node, without a restart.
A quota counts together with the rules that apply: an ask has all of them, or takes of none.

Cost: a dict look-up where a table says anything at all, else nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.rules.resources.rule import ResourceRule

CALLERS_MAX: Final = 1_000_000
PENALTY_MAX: Final = 1_000
QUOTA_MARK: Final = "quota:"  # what a quota's rule is called by, before the caller's name

_NO_CLASSES: Final[Mapping[str, Criticality]] = {}
_NO_QUOTAS: Final[Mapping[str, ResourceRule]] = {}
_NO_PENALTIES: Final[Mapping[str, Fraction]] = {}


@final
class CallerRules:
    """The tables of callers. `special` is whether quotas or penalties say anything."""

    __slots__ = ("_penalties", "highest", "pins", "quotas", "special", "strangers")

    def __init__(
        self,
        highest: Mapping[str, Criticality] = _NO_CLASSES,
        *,
        strangers: Criticality = DEFAULT_CRITICALITY,
        quotas: Mapping[str, ResourceRule] = _NO_QUOTAS,
        penalties: Mapping[str, Fraction] = _NO_PENALTIES,
        pins: frozenset[str] = frozenset(),
    ) -> None:
        self.highest: Mapping[str, Criticality] = dict(highest)
        self._penalties = {
            name: (factor.numerator, factor.denominator) for name, factor in penalties.items()
        }
        self.strangers = strangers
        self.quotas: Mapping[str, ResourceRule] = dict(quotas)
        self.pins = pins
        self.special = bool(quotas or penalties)

    def clamp(self, caller: str, claim: Criticality) -> Criticality:
        """The claim, as far as it is believed."""
        highest = self.highest.get(caller)
        if highest is None:
            highest = self.strangers
        return highest if claim < highest else claim

    def price(self, caller: str, cost: int) -> int:
        """What so much costs this caller, rounded up."""
        penalty = self._penalties.get(caller)
        if penalty is None:
            return cost
        times, over = penalty
        return -(-cost * times // over)
