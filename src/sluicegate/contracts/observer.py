"""Observer: receives every decision, and counts, logs or traces it.

It is called where the decision is made, on threads and event loops alike: it must be quick, must
not wait, and must not raise. Keys are passed so that a log may show them; a metric must never have
one as a label.
"""

from __future__ import annotations

from typing import Protocol

from sluicegate.contracts.decision import Decision


class Observer(Protocol):
    """What may be watched. Instants are of the limiter's own clock.

    Two members are optional. With an attribute `wants_decisions` that is False it is given no
    decisions, each of which costs a call. A method `record_lease_lag(rule: str, lag_us: int)` is
    given the age of a block of a lease when it was last spent from.
    """

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """One decision."""
        ...

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """One round trip for so many decisions; `failure` is what was seen if it failed, or ""."""
        ...

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Units of a lease: `taken` from the store, `spent`, `returned`, or `lapsed` here."""
        ...
