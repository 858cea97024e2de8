"""A refusal tells callers to hold back where there is too little, and only there."""

from __future__ import annotations

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.testing import HandClock, SeededChance


def test_deadline_missed_in_queue_is_marked_as_overload() -> None:
    protection = Protection(Resilience(slots=1), clock=HandClock(0), chance=SeededChance(1))
    request = Request("k")
    late = Decision(False, 0, -1, 0, DEADLINE, "queue")
    assert protection.mark_of(late, request) is None  # too little time to begin with
    permit = protection.try_admit(request, 0)
    assert isinstance(permit, GatePermit)
    assert protection.mark_of(late, request) is not None
