from __future__ import annotations

import random
from collections import Counter

from sluicegate.apps.up.counts import MINUTE_S, REFUSED_HALF_LIFE_S, Minute
from sluicegate.apps.up.named_limits import NamedLimits
from sluicegate.apps.up.settings import parse_rules
from sluicegate.testing import HandClock


def gate(*rules: str) -> tuple[NamedLimits, HandClock]:
    clock = HandClock()
    return NamedLimits(parse_rules(rules), clock), clock


def test_every_decision_is_counted_once_under_its_rule_and_reason() -> None:
    doors, _ = gate("api = 2/min", "batch = 10/min")
    for _ in range(5):
        doors.check("api", "ann", 1)
    doors.check("batch", "ann", 11)
    counts = doors.snapshot()
    api, batch = counts.rules
    assert (api.admitted, api.refused, api.reasons) == (2, 3, {"rate_limited": 3})
    assert (batch.admitted, batch.refused, batch.reasons) == (0, 1, {"cost_above_limit": 1})
    assert (counts.admitted, counts.refused) == (2, 4)
    assert counts.reasons == {"rate_limited": 3, "cost_above_limit": 1}
    assert doors.keys() == {"api": 1, "batch": 0}


def test_two_rules_of_one_rate_do_not_share_their_keys() -> None:
    doors, _ = gate("a = 1/min", "b = 1/min")
    assert doors.check("a", "ann", 1).allowed
    decision = doors.check("b", "ann", 1)
    assert (decision.allowed, decision.rule_id) == (True, "b")


def test_a_rate_is_the_mean_of_whole_seconds_and_fades() -> None:
    doors, clock = gate("api = 1000/s")
    clock.advance(s=1)
    for _ in range(5):
        for _ in range(10):
            doors.check("api", "ann", 1)
        clock.advance(s=1)
    assert doors.snapshot().per_s == 10
    clock.advance(s=2)
    assert doors.snapshot().per_s == 6
    clock.advance(s=3)
    assert doors.snapshot().per_s == 0


def test_a_rate_is_told_early() -> None:
    doors, clock = gate("api = 1000/s")
    for _ in range(4):
        doors.check("api", "ann", 1)
        clock.advance(ms=250)
    assert doors.snapshot().per_s == 4


def test_the_minute_holds_what_a_full_log_would_tell() -> None:
    chance = random.Random(5)
    minute, log, second = Minute(), Counter[int](), 1_000_000
    for _ in range(3_000):
        second += chance.choice([0, 0, 0, 0, 1, 1, 2, 61, 300] if chance.random() < 0.1 else [0, 1])
        minute.add(second)
        log[second] += 1
        expected = tuple(log[past] for past in range(second - MINUTE_S, second))
        assert minute.whole(second) == expected


def test_the_minute_forgets_while_nothing_comes() -> None:
    minute = Minute()
    minute.add(100)
    assert minute.whole(101)[-1] == 1
    assert sum(minute.whole(160)) == 1
    assert sum(minute.whole(161)) == 0


def test_the_keys_refused_most_are_those_of_late() -> None:
    doors, clock = gate("api = 1/h")
    for _ in range(101):
        doors.check("api", "was busy", 1)
    (was,) = doors.snapshot().refused_keys
    assert (was.rule, was.key, was.share) == ("api", "was busy", 1.0)
    for _ in range(4):
        clock.advance(s=REFUSED_HALF_LIFE_S)
        for _ in range(51):
            doors.check("api", "is busy", 1)
    first, second = doors.snapshot().refused_keys
    assert (first.key, second.key) == ("is busy", "was busy")
    assert first.share > 0.8


def test_latencies_are_those_of_the_last_ten_seconds() -> None:
    doors, clock = gate("api = 1000/s")
    assert doors.snapshot().decision == (None, None)
    doors.counts.answered(100, clock.now_us())
    doors.check("api", "ann", 1)
    latencies = doors.snapshot()
    assert latencies.decision.p99_us == 0
    assert latencies.answer.p50_us is not None
    assert abs(latencies.answer.p50_us - 100) < 2
    clock.advance(s=11)
    assert doors.snapshot().answer == (None, None)
