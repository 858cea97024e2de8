"""Break-glass: a dispatcher refuses nobody for a quota of which enforcement is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluicegate.apps.kv.glass_budget import GlassBudget
from sluicegate.limits.glass.break_glass import ALL, Glass, GlassView, Opening
from sluicegate.limits.glass.sources import open_source
from sluicegate.policies.quota.budgets import TokenBudgets
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.apps.limiter.process import rules_file
from tests.engines.child import until

SECOND = 1_000_000


def stopped(rule: str, key: str) -> tuple[GlassBudget, Glass]:
    """Ten request units a second for each caller; two seconds in which they are not enforced."""
    glass = Glass()
    opening = Opening("1", rule, key, 2 * SECOND, 0, "ann", "their launch")
    glass.show(GlassView(0, [opening]), 0)
    return GlassBudget(TokenBudgets(10, 10, 0, callers_max=10), glass), glass


@pytest.mark.parametrize(("rule", "key"), [(ALL, "ann"), ("quota:ann", ALL), (ALL, ALL)])
def test_who_is_let_through_spends_nothing_of_its_quota(rule: str, key: str) -> None:
    budget, _ = stopped(rule, key)
    for _ in range(50):
        assert budget.charge("ann", 9_000, SECOND).allowed
        budget.settle("ann", 9_000, SECOND)
    assert [budget.charge("ann", 9_000, 2 * SECOND).allowed for _ in range(2)] == [True, False]


def test_nobody_else_is_let_through() -> None:
    budget, glass = stopped("quota:ann", ALL)
    assert [budget.charge("bob", 9_000, SECOND).allowed for _ in range(2)] == [True, False]
    glass.mend()
    assert [budget.charge("ann", 9_000, SECOND).allowed for _ in range(2)] == [True, False]


def test_a_dispatcher_obeys_and_enforces_again(tmp_path: Path) -> None:
    rules = rules_file(tmp_path, "version: 1\ncallers: {quotas: {ann: 20/s, bob: 20/s}}\n")
    grants = 'grants = ["audit"]\ntables = { "*" = ["read"] }'
    access = access_file(tmp_path, {"ann": grants, "bob": grants})
    url = f"file:{tmp_path / 'glass.json'}"
    source = open_source(url)
    flags = ("--engine", "memory:", "--rules", rules, "--access", access, "--glass", url)
    with KvProcess(tmp_path, *flags) as dispatcher:

        def refused(name: str) -> bool:
            with dispatcher.redis(token_of(name)) as client, client.pipeline(False) as pipe:
                for at in range(60):
                    pipe.get(f"shops:{at}")
                answers = pipe.execute(raise_on_error=False)
            return any("LIMITED" in str(one) for one in answers)

        assert refused("ann")
        asyncio.run(source.break_(key="ann", for_s=60, by="ann", why="their launch"))
        until(lambda: not refused("ann"), "it has heard of it", children=[dispatcher.child])
        assert refused("bob")
        [opening] = dispatcher.ask("/v1/state", token=token_of("ann"))[1]["glass"]["openings"]
        assert (opening["key"], opening["by"]) == ("ann", "ann")
        asyncio.run(source.mend(None, by="ann"))
        until(lambda: refused("ann"), "it is enforced again", children=[dispatcher.child])
