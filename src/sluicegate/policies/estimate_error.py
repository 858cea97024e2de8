"""Estimate error: what estimates have charged a caller too little, until its next ones pay it.

The part of `request_units` that keeps a mean honest. A charge before the fact is an estimate; when
the work has ended its cost is known, and the difference is added to what the caller's next estimate
charges. So the sum of charges follows the sum of costs with a lag of one request, whatever the
shapes and in whatever order they come: an estimate that is off cannot be gained from twice.

    owed     cost - charge, of what has ended and no later estimate has paid; below 0: to give back
    at risk  of what is under way: by how much the heaviest that the caller reads is above its mean
    unseen   of what is under way: by how much the heaviest rows of its table are above that

What is owed is paid as far as `Budget.payable_mru` allows in one charge. Where more is owed than a
whole charge, it is paid before any further work: else work that is dearer than any charge would
never be paid, and a small quota be worth several times as much. What was charged too much
pays what is owed, and lowers the next estimate as far as a tenth of it stays; as soon as it is more
than half an estimate it goes back to the budget, where what an epoch does not spend lapses. Kept
here it would be a second quota, for a later minute.

Within one burst there is no next estimate yet. So once more than `RISK_CHARGES` of the largest
charges are at risk, each further request is estimated as the heaviest, and what that is too much
goes back when it has ended.

Whoever has read nothing but small rows may come for many huge ones at once. To estimate these as
the heaviest of the table would refuse who never reads one. So a caller is `held` while more than
`UNSEEN_CHARGES` of the largest charges are unseen: its next request waits until one has ended,
which teaches what it reads. For how long is for whoever lets it wait to say.

Bound: `callers_max`; of the `LOOKS` oldest, the one that owes least either way is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

LOOKS: Final = 4
RISK_CHARGES: Final = 2
UNSEEN_CHARGES: Final = 4
LEFT_PART: Final = 10  # of an estimate, that is charged whatever is given back


@final
class EstimateError:
    """One caller's."""

    __slots__ = ("at_risk_mru", "owed_mru", "paid_mru", "unseen_mru")

    def __init__(self, owed_mru: int = 0) -> None:
        self.owed_mru = owed_mru
        self.at_risk_mru = self.unseen_mru = 0
        self.paid_mru = 0  # by no request, and in the account of none yet

    def instalment_mru(self, estimate_mru: int, payable_mru: int) -> int:
        """What this estimate is to pay of it beside its own; below 0, what it gets back."""
        owed = self.owed_mru
        if owed > 0:
            room = payable_mru - estimate_mru
            return 0 if room <= 0 else owed if owed < room else room
        most = estimate_mru - -(-estimate_mru // LEFT_PART)
        return owed if -owed < most else -most

    def end(self, difference_mru: int, estimate_mru: int) -> int:
        """Take in by how much one has cost more than estimated; returns what is to go back now."""
        owed = self.owed_mru + difference_mru
        if owed * 2 >= -estimate_mru:
            self.owed_mru = owed
            return 0
        self.owed_mru = 0
        return -owed


@final
class EstimateErrors:
    """Of all callers, at most `callers_max`."""

    __slots__ = ("_errors", "callers_max", "held")

    def __init__(self, callers_max: int) -> None:
        self.callers_max = callers_max
        self.held: set[str] = set()  # who has too much unseen under way
        self._errors: dict[str, EstimateError] = {}

    def meet(self, caller: str) -> EstimateError:
        """This caller's."""
        error = self._errors.get(caller)
        if error is None:
            if len(self._errors) >= self.callers_max:
                self._forget()
            error = self._errors[caller] = EstimateError()
        return error

    def owed_mru(self) -> dict[str, int]:
        """What each owes, where it is anything."""
        return {name: one.owed_mru for name, one in self._errors.items() if one.owed_mru}

    def restore(self, owed_mru: Mapping[str, int]) -> None:
        """Begin with what was kept."""
        for caller, mru in owed_mru.items():
            if len(self._errors) < self.callers_max and caller not in self._errors:
                self._errors[caller] = EstimateError(mru)

    def __len__(self) -> int:
        return len(self._errors)

    def _forget(self) -> None:
        errors = self._errors
        looked = []
        for caller in errors:
            looked.append(caller)
            if len(looked) == LOOKS:
                break
        least = min(looked, key=lambda caller: abs(errors[caller].owed_mru))
        for caller in looked:
            error = errors.pop(caller)
            if caller != least:
                errors[caller] = error  # behind the others: the next search looks elsewhere
