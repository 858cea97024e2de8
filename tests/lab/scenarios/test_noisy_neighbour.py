"""Tenants before the same workers: what is counted, how parts are asked for, and who misses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Even
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.rigs.tenants import (
    QpsQuota,
    TenantGate,
    Tenants,
    alone_p99_us,
    chunked,
    fifo,
    play,
    units_of,
)
from sluicegate.lab.scenario import AnyScenario, run_trials
from sluicegate.lab.scenarios.noisy_neighbour import SCENARIO, rig
from sluicegate.lab.world import World

SECOND = 1_000_000
# Scans that are under way at the end count for nothing: of 1.5 s that is up to a tenth.
SMALL = replace(SCENARIO, rigs={"10x": rig(ru_us=4_000.0, span_us=6_000_000)})
SMALLER = replace(SCENARIO, rigs={"10x": rig(ru_us=8_000.0, span_us=2_500_000)})


def met(scenario: AnyScenario, candidate: str) -> bool:
    return run_trials(scenario, [candidate], [1]).meets_goals(candidate)


@pytest.mark.prove
def test_ours_meets_the_goals_in_a_rig_half_as_fast() -> None:
    assert met(SMALL, "chunks")


@pytest.mark.prove
@pytest.mark.parametrize("candidate", SCENARIO.must_fail)
def test_who_must_fail_misses(candidate: str) -> None:
    assert not met(SMALLER, candidate)


def one_kind(**changes: object) -> Tenants:
    kind = WorkKind(name="scan", arrivals=Even(10), cost=20, timeout_us=SECOND)
    some: dict[str, object] = {"kinds": (kind,), "workers": 4, "span_us": 2 * SECOND, "warm_us": 0}
    return Tenants(**(some | changes))  # type: ignore[arg-type]


class Turnstile:
    """Refuses every second part, with a hint, and counts what it is asked."""

    def __init__(self, refusals: int, retry_us: int) -> None:
        self.refusals, self.retry_us = refusals, retry_us
        self.calls: list[tuple[int, str]] = []
        self.ended: list[tuple[Outcome, bool]] = []

    async def admit(self, request: Request, clock: Clock) -> Turnstile | Decision:
        self.calls.append((clock.now_us(), request.attributes.get("rows", "")))
        if len(self.calls) % 2 == 0 and self.refusals > 0:
            self.refusals -= 1
            return Decision(False, 0, self.retry_us, self.retry_us, QUOTA_SPENT, "turnstile")
        return self

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        self.ended.append((outcome, spent))
        return True


def test_a_part_that_is_refused_after_the_first_asks_again_when_it_was_told_to() -> None:
    turnstile = Turnstile(refusals=1, retry_us=70_000)
    the_rig = one_kind(kinds=(WorkKind(name="scan", arrivals=Even(1), cost=20, timeout_us=SECOND),))

    def make(rig: Tenants, world: World) -> TenantGate:
        return TenantGate(turnstile, cut=lambda request: units_of(rig).chunks(request, 10))

    account = play(the_rig, make, 1).accounts[0]
    assert account.good == 1
    parts = [rows for _, rows in turnstile.calls]
    assert parts[1] == parts[2], "the one that was refused"
    assert turnstile.calls[2][0] - turnstile.calls[1][0] == 70_000
    assert sum(int(rows) for rows in [*parts[:1], *parts[2:]]) == 20
    assert all(outcome is Outcome.SUCCESS for outcome, _ in turnstile.ended)


def test_who_is_refused_at_the_first_part_is_refused_and_gives_back_what_it_held() -> None:
    once = Turnstile(refusals=0, retry_us=0)
    each = Turnstile(refusals=1_000, retry_us=1)
    each.calls.append((0, ""))  # so that the next one is the second

    account = play(one_kind(), lambda rig, world: TenantGate(each, once), 1).accounts[0]
    assert account.refused == len([spent for _, spent in once.ended if not spent]) > 3
    assert account.good == len([spent for _, spent in once.ended if spent]) > 3
    assert account.success() == account.good / (account.good + account.refused)


def test_work_is_all_its_request_units_and_only_what_is_done_is_counted() -> None:
    account = play(one_kind(), fifo, 3).accounts[0]
    done = account.good + account.late
    assert account.worked_us == pytest.approx(done * 20 * 2_000, rel=0.15)
    assert account.useful_us <= account.worked_us
    assert len(account.good_us()) == account.good


def test_alone_is_without_the_others_and_without_a_gate() -> None:
    the_rig = rig(ru_us=16_000.0, span_us=5 * SECOND)
    assert [kind.name for kind in the_rig.alone("read").kinds] == ["read"]
    alone = alone_p99_us(the_rig, "read", 1)
    assert alone == pytest.approx(4.605 * 16_000, rel=0.2)
    assert alone == alone_p99_us(the_rig, "read", 1)


def test_the_same_seed_is_the_same_run() -> None:
    the_rig = rig(ru_us=64_000.0, span_us=2 * SECOND)
    first, again = (play(the_rig, chunked(), 4) for _ in range(2))
    assert [a.good_us_at for a in first.accounts] == [a.good_us_at for a in again.accounts]


def test_a_quota_of_calls_counts_each_caller_for_itself_and_no_cost() -> None:
    quota = QpsQuota(2)
    dear = Request("k", caller="a", cost=1_000)
    assert quota.admit(dear, 0)
    assert quota.admit(dear, 1)
    refused = quota.admit(dear, 2)
    assert isinstance(refused, Decision)
    assert refused.reason is QUOTA_SPENT
    assert quota.admit(Request("k", caller="b"), 3)
    assert quota.admit(dear, SECOND)
    with pytest.raises(BadValue):
        QpsQuota(0)


def test_a_rig_without_kinds_or_without_time_is_refused() -> None:
    with pytest.raises(BadValue, match="kinds"):
        one_kind(kinds=())
    with pytest.raises(BadValue, match="warm_us"):
        one_kind(warm_us=2 * SECOND)
