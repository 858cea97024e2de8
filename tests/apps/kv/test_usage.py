"""What callers use is counted by who they are, and rolled up minute by minute."""

from __future__ import annotations

from pathlib import Path

from sluicegate.apps.kv.metrics import of_stack
from sluicegate.apps.kv.rollups import Rollups
from sluicegate.apps.kv.usage import OTHERS, CallerTotals, CallerUsage
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.stack import StackStats
from sluicegate.telemetry.prometheus import page
from sluicegate.telemetry.usage_files import MINUTE_US, UsageMinute, UsageWriter, read_usage
from sluicegate.testing import HandClock

CLOCK = HandClock()
NOW = CLOCK.now_us()
NO = Decision(False, 0, 1, 1, QUOTA_SPENT, "quota")


def get_request(caller: str, ru: int) -> Request:
    request = Request("k", caller=caller, operation="get")
    request.cost_ru, request.cost_mru = ru, ru * 1_000
    request.measured = Measured(500, 1, 1)
    return request


def test_callers_are_counted_apart_up_to_a_bound() -> None:
    usage = CallerUsage(callers_max=1)
    usage.record_end(get_request("shop", 3), Outcome.SUCCESS, NOW)
    usage.refuse(get_request("shop", 2), NO)
    usage.cached("shop", 100)
    usage.record_end(get_request("late", 5), Outcome.DROPPED, NOW)
    assert usage.now() == {
        "shop": CallerTotals(3_100, 1, 1, 2_000, 1),
        OTHERS: CallerTotals(5_000, 1, 0, 0, 0),
    }
    assert usage.reasons == {"quota_spent": 1}
    assert usage.operations() == {"get": (1, 1, 500)}


def test_what_memory_answers_is_in_the_units_that_are_told() -> None:
    usage = CallerUsage()
    usage.record_end(get_request("shop", 3), Outcome.SUCCESS, NOW)
    for _ in range(25):
        usage.cached("shop", 100)
    assert usage.now() == {"shop": CallerTotals(5_500, 1, 0, 0, 25)}


def test_each_minute_has_what_was_used_in_it(tmp_path: Path) -> None:
    usage = CallerUsage()
    rollups = Rollups(usage, UsageWriter(str(tmp_path), "n", days=35), CLOCK)
    minute = NOW // MINUTE_US
    usage.record_end(get_request("shop", 3), Outcome.SUCCESS, NOW)
    rollups.roll(minute)
    usage.record_end(get_request("shop", 4), Outcome.SUCCESS, NOW)
    usage.refuse(get_request("shop", 6), NO)
    rollups.roll(minute + 1)
    rollups.roll(minute + 2)
    assert read_usage([str(tmp_path)], minute, minute + 9) == {
        "shop": {minute: UsageMinute(3, 0), minute + 1: UsageMinute(10, 6)}
    }


def test_refusals_and_latencies_are_shown_by_class_and_add_up() -> None:
    usage = CallerUsage()
    for member, took_us in ((Criticality.CRITICAL, 300), (Criticality.BULK, 90_000)):
        request = get_request("shop", 3)
        request.criticality, request.arrived_us = member, NOW
        usage.record_end(request, Outcome.SUCCESS, NOW + took_us)
        usage.record_end(request, Outcome.DROPPED, NOW + took_us)  # what was lost took no time
    late = get_request("shop", 2)
    late.criticality = Criticality.BULK
    usage.refuse(late, NO)
    stats = StackStats(3, 0, 2, 1, 0, 0, 2, ())
    lines = page(of_stack(stats, usage)).decode().splitlines()
    assert 'sluicegate_kv_refused_total{reason="quota_spent",priority="BULK"} 1' in lines
    name = "sluicegate_kv_request_seconds"
    for priority, below, total in (("CRITICAL", 1, 0.0003), ("BULK", 0, 0.09)):
        of = f'operation="get",priority="{priority}"'
        assert f'{name}_bucket{{{of},le="0.001"}} {below}' in lines
        assert f'{name}_bucket{{{of},le="+Inf"}} 1' in lines
        assert f"{name}_count{{{of}}} 1" in lines
        assert f"{name}_sum{{{of}}} {total}" in lines
