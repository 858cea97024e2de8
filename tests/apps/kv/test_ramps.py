"""`sluicegate kv --shed-form utilization`: classes are shed by how full the event loop is."""

from __future__ import annotations

from sluicegate.apps.kv.chain import PolicyChain, default_weights
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.request import Request
from sluicegate.policies.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.testing import HandClock, SeededChance

NOW = HandClock().now_us()


def refused(settings: KvSettings, utilization: float) -> set[str]:
    """The classes of which none of a hundred gets in when the loop is so full."""
    chain = PolicyChain(
        settings,
        SeededChance(1),
        CallerUsage(),
        budget=LeasedBudget(LeasedBudgetSettings(form="live", quota_ru=1_000_000)),
        weights=default_weights(),
        shard_places=64,
    )
    chain.stress.record_utilization(utilization, NOW)
    out = set()
    for member in Criticality:
        requests = [
            Request("a", caller="ann", operation="get", criticality=member) for _ in range(100)
        ]
        answers = [chain.levels.admit(request, NOW) for request in requests]
        if sum(isinstance(answer, Decision) for answer in answers) > 90:
            out.add(member.name)
    return out


def test_together_bulk_and_best_effort_go_and_one_by_one_bulk_alone() -> None:
    together = KvSettings(shed_form="utilization", shed_ramps="together")
    assert refused(together, 0.85) == {"BULK", "BEST_EFFORT"}
    assert refused(together, 0.5) == set()
    one_by_one = KvSettings(shed_form="utilization")
    assert refused(one_by_one, 0.7) == {"BULK"}


def test_by_default_a_full_loop_alone_sheds_nobody() -> None:
    assert refused(KvSettings(shed_ramps="together"), 0.85) == set()
