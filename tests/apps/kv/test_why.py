"""`sluicegate why` shows the refusals of a dispatcher with the numbers as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluicegate.apps.kv.chain import PolicyChain, default_weights
from sluicegate.apps.kv.refusals import TOGETHER_US, RefusalRing
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.cli import main
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import QUEUE_FULL, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.testing import HandClock
from tests.apps.kv.process import KvProcess, access_file, token_of

NOW = HandClock().now_us()
SPENT = Decision(False, 0, 500_000, 1, QUOTA_SPENT, "request_units")
FULL = Decision(False, 0, 1_000, 1, QUEUE_FULL, "queue")


def ring_of(entries_max: int = 100) -> tuple[RefusalRing, LeasedBudget]:
    budget = LeasedBudget(LeasedBudgetSettings(form="live", quota_ru=100))
    chain = PolicyChain(KvSettings(), CallerUsage(), budget=budget, weights=default_weights())
    return RefusalRing(chain, budget.standing, entries_max=entries_max), budget


def put_by(caller: str) -> Request:
    request = Request("homes", caller=caller, operation="put", shard="s1", table="homes")
    request.criticality = Criticality.DEGRADED
    request.cost_mru, request.price_milli = 6_500, 2_000
    return request


def test_numbers_are_those_of_the_refusal_and_not_of_who_looks() -> None:
    ring, budget = ring_of()
    budget.charge("shop", 70_000, NOW)
    ring.record(put_by("shop"), SPENT, NOW)
    budget.charge("shop", 20_000, NOW)
    (entry,) = ring.find("shop")
    assert (entry.stage, entry.reason, entry.operation) == ("request_units", "quota_spent", "put")
    assert (entry.cost_mru, entry.price_milli) == (6_500, 2_000)
    assert (entry.balance_mru, entry.quota_mru) == (30_000, 100_000)
    assert (entry.limit, entry.limit_origin) == (0, "none yet")


def test_what_repeats_itself_is_one_entry_and_another_stage_is_another() -> None:
    ring, _ = ring_of()
    for _ in range(1_000):
        ring.record(put_by("shop"), SPENT, NOW)
    ring.record(put_by("shop"), FULL, NOW + 1)
    ring.record(put_by("shop"), SPENT, NOW + TOGETHER_US)
    assert [(one.stage, one.times) for one in ring.find("shop")] == [
        ("request_units", 1),
        ("queue", 1),
        ("request_units", 1_000),
    ]
    assert [one.times for one in ring.find("shop", since_us=NOW + 1)] == [1, 1]
    assert ring.find("else") == []


def test_whoever_hammers_leaves_the_refusals_of_others_there() -> None:
    ring, _ = ring_of(entries_max=2)
    ring.record(put_by("quiet"), SPENT, NOW)
    for _ in range(1_000):
        ring.record(put_by("loud"), SPENT, NOW)
    assert [one.times for one in ring.find("quiet")] == [1]
    for at in range(10):
        ring.record(put_by(f"new-{at}"), SPENT, NOW)
    assert len(ring) == 2


def test_an_operator_asks_a_running_dispatcher_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = {
        "shop": 'tables = { "*" = ["read", "write"] }',
        "operator": 'grants = ["audit"]',
    }
    access = access_file(tmp_path, callers)
    flags = ["--engine", "memory:", "--quota-ru", "20", "--access", access]
    with KvProcess(tmp_path, *flags) as kv:

        def why(*arguments: str, by: str = "operator") -> str:
            monkeypatch.setenv("SLUICEGATE_TOKEN", token_of(by))
            main(["why", *arguments, "--at", kv.url])
            told = capsys.readouterr()
            return told.out + told.err

        path, token = "/v1/tables/homes/rows/1", token_of("shop")
        statuses = [kv.ask(path, {"n": 1}, method="PUT", token=token)[0] for _ in range(40)]
        assert 429 in statuses
        told = why("shop")
        assert "REFUSED put of homes by request_units" in told
        assert "quota_spent" in told
        assert "RU left here of 20 an epoch" in told
        decisions = json.loads(why("shop", "--json"))["decisions"]
        assert sum(one["times"] for one in decisions) == statuses.count(429)
        assert "nothing is kept" in why("operator")
        assert "audit" in why("shop", by="shop")
