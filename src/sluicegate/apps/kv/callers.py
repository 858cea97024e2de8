"""Callers: what rules and the access file say of each caller, for the policies and the budget.

    callers.names       the highest class that a caller may claim     rules, else the access file
    callers.quotas      request units over a time                     rules, else --quota-ru
    callers.penalties   a factor on the cost of a caller's requests   rules

Rules follow their files or a rulebook, so all of this changes without a restart; callers of a
running canary are governed by its rules. A caller's quota in the rules of a limiter counts hits;
here the same number counts request units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import Request
from sluicegate.contracts.rule import Limit
from sluicegate.kernels.token_bucket import PRICE_ONE_MILLI
from sluicegate.policies.quota.budgets import Pricing
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.resources.callers import CallerRules
from sluicegate.rules.service_rule_set import ServiceRuleSet

NOBODY: Final = CallerRules()


@final
class CallerTable:
    """What is said of callers now, and who is told when that changes.

    It prices as well: a penalty of the rules makes all requests of a caller more expensive.
    """

    __slots__ = (
        "_books",
        "_callers",
        "_canary",
        "_epoch_us",
        "_identities",
        "_set_classes",
        "_set_penalties",
        "_set_quotas",
    )

    def __init__(
        self,
        epoch_us: int,
        *,
        set_quotas: Callable[[Mapping[str, int]], None],
        set_classes: Callable[[Mapping[str, Criticality]], None],
        set_penalties: Callable[[Pricing | None], None],
    ) -> None:
        self._epoch_us = epoch_us
        self._set_quotas = set_quotas
        self._set_classes = set_classes
        self._set_penalties = set_penalties
        self._callers = NOBODY
        self._canary = NOBODY  # by a canary
        self._books: FleetBooks | None = None
        self._identities: Sequence[Identity] = ()

    def put_in_force(self, book: ServiceRuleSet) -> None:
        """The rules are these from now on."""
        self._callers = book.resources.priorities.callers
        self.apply()

    def put_fleet(self, books: FleetBooks) -> None:
        """The rules are those of a rulebook."""
        self._books = books
        self._callers = books.live.resources.priorities.callers
        self._canary = NOBODY
        if books.canary is not None:
            self._canary = books.canary.resources.priorities.callers
        self.apply()

    def know(self, identities: Sequence[Identity]) -> None:
        """The access file names these."""
        self._identities = identities
        self.apply()

    def apply(self) -> None:
        """Set the classes and quotas of all."""
        classes = {one.name: one.highest for one in self._identities if one.highest is not None}
        for caller in {**self._callers.highest, **self._canary.highest}:
            highest = self._of(caller).highest.get(caller)
            if highest is not None:
                classes[caller] = highest
        self._set_classes(classes)
        self._set_quotas(self.quotas())
        # A request is not asked for its penalty while no rule has one.
        special = self._callers.special or self._canary.special
        self._set_penalties(self if special else None)

    def price_milli(self, request: Request, now_us: int) -> int:
        """What a request unit costs its caller now, in thousandths."""
        return self._of(request.caller).price(request.caller, PRICE_ONE_MILLI)

    def quotas(self) -> dict[str, int]:
        """By caller, request units an epoch."""
        quotas: dict[str, int] = {}
        for caller in {**self._callers.quotas, **self._canary.quotas}:
            rule = self._of(caller).quotas.get(caller)
            if rule is not None:
                quotas[caller] = max(1, units_in(rule.kind.limit, self._epoch_us))
        return quotas

    def quotas_a_second(self) -> dict[str, int]:
        """By caller of the rules, request units a second."""
        return {
            caller: quota_ru * 1_000_000 // self._epoch_us
            for caller, quota_ru in self.quotas().items()
        }

    def _of(self, caller: str) -> CallerRules:
        """What this caller goes by."""
        books = self._books
        if books is not None and books.runs_canary(caller):
            return self._canary
        return self._callers


def units_in(limit: Limit, epoch_us: int) -> int:
    """How many units a limit gives in an epoch, rounded to the nearest."""
    return round(Fraction(limit.count * epoch_us, limit.period_us))
