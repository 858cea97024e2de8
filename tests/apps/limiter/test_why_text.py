from __future__ import annotations

import json

from sluicegate.command_line.decision_words import describe, describe_refusal
from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.admission.utilization_gate import Readings, UtilizationSettings
from sluicegate.service.siblings import merge_pages
from sluicegate.service.status import to_json


def test_whatever_a_part_tells_becomes_what_json_can_hold() -> None:
    parts = {
        Criticality.BULK: (1, 2.5, None, True),
        "readings": Readings(0.5),
        "settings": UtilizationSettings(),
        "kinds": frozenset({"one"}),
    }
    value = json.loads(json.dumps(to_json(parts)))
    assert value["BULK"] == [1, 2.5, None, True]
    assert value["readings"]["cpu"] == 0.5
    assert value["settings"]["retry_after_us"] == 1_000_000
    assert value["kinds"] == ["one"]


def test_pages_of_several_workers_say_each_family_once() -> None:
    first = (
        '# HELP a_total A.\n# TYPE a_total counter\na_total{worker="0"} 1\n# TYPE b gauge\nb 1\n'
    )
    second = (
        '# HELP a_total A.\n# TYPE a_total counter\na_total{worker="1"} 2\n# TYPE c gauge\nc 3\n'
    )
    assert merge_pages([first, second]).splitlines() == [
        "# HELP a_total A.",
        "# TYPE a_total counter",
        'a_total{worker="0"} 1',
        'a_total{worker="1"} 2',
        "# TYPE b gauge",
        "b 1",
        "# TYPE c gauge",
        "c 3",
    ]


def entry(**more: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "last_us": 1_000_000,
        "times": 1,
        "allowed": False,
        "rule_id": "login",
        "reason": "rate_limited",
        "signal": "",
        "shadow": False,
        "without_store": False,
        "overridden": False,
        "weight": 1,
        "priority": "BULK",
        "remaining": 0,
        "retry_after_us": 2_500_000,
    }
    return {**usual, **more}


def test_an_entry_is_told_in_words_that_one_can_act_on() -> None:
    assert describe(entry(times=3, weight=3), 3_000_000) == (
        "2.0 s ago  3 x REFUSED by rule 'login'; rate_limited: The limit for this key is spent; "
        "cost 3, BULK; 0 left; may come again 2.5 s after that"
    )
    assert "may come again 44.4 min after that" in describe(
        entry(retry_after_us=2_664_000_000), 1_000_000
    )
    assert "asking again will not help" in describe(entry(retry_after_us=-1), 1_000_000)
    assert "it is only tried out; else: rate_limited" in describe(
        entry(allowed=True, shadow=True), 1_000_000
    )
    assert "the store did not answer" in describe(
        entry(allowed=True, without_store=True, reason="", retry_after_us=0), 1_000_000
    )
    assert "break-glass" in describe(entry(allowed=True, overridden=True, reason=""), 1_000_000)
    assert "by no rule" in describe(entry(rule_id=""), 1_000_000)
    assert " left" not in describe(entry(rule_id="", reason="shed"), 1_000_000)


def test_a_shed_names_what_the_service_suffers_and_the_switch() -> None:
    text = describe(entry(rule_id="", reason="shed", signal="lag"), 1_000_000)
    assert "its event loop is late (lag); --shed off would admit it" in text


def test_a_large_number_of_units_is_told_whole() -> None:
    refusal = {
        "last_us": 1_000_000,
        "times": 1,
        "operation": "put",
        "table": "homes",
        "stage": "request_units",
        "priority": "BULK",
        "reason": "quota_spent",
        "price_milli": 1_000,
        "cost_mru": 12_345_678,
        "balance_mru": 789,
        "quota_mru": 10_000_000,
        "ratio": None,
        "shard": "s1",
        "limit": 64,
        "limit_origin": "found",
        "queue_us": 0,
        "stress": [],
        "retry_after_us": 0,
    }
    told = describe_refusal(refusal, 1_000_000)
    assert "cost 12,346 RU; 0.789 RU left here of 10,000 an epoch" in told
    assert "limit of shard s1 64 (found)" in told
