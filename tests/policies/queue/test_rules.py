"""Queue rules: when whoever waits is better refused, instant by instant."""

from __future__ import annotations

from math import sqrt

import pytest

from sluicegate.kernels.codel import CodelSettings
from sluicegate.policies.queue.rules import CodelRule, FacebookRule, PacketRule, QueueRule

MS = 1_000
START = 1_000_000_000_000_000


def codel(*, until_empty: bool) -> CodelRule:
    settings = CodelSettings(target_us_max=50 * MS)
    return CodelRule(settings, until_empty=until_empty)


def folly() -> CodelRule:
    return codel(until_empty=False)


def packets() -> PacketRule:
    return PacketRule(CodelSettings())


def dropped(rule: PacketRule | CodelRule, delay_us: int, first_ms: int, last_ms: int) -> list[int]:
    """The milliseconds at which one who has waited so long goes, if it is asked each of them."""
    return [ms for ms in range(first_ms, last_ms) if rule.drop(delay_us, START + ms * MS)]


def test_folly_drops_what_is_twice_the_target_old_after_an_interval_without_a_short_delay() -> None:
    rule = folly()
    assert dropped(rule, 11 * MS, 0, 102) == []
    assert rule.overloaded()
    assert dropped(rule, 11 * MS, 102, 150) == list(range(102, 150))
    assert not rule.drop(10 * MS, START + 150 * MS)
    rule.drop(1 * MS, START + 160 * MS)  # one short delay, and the next interval is a good one
    assert dropped(rule, 11 * MS, 204, 300) == []


def test_the_default_goes_on_until_somebody_has_not_waited() -> None:
    rule = codel(until_empty=True)
    dropped(rule, 11 * MS, 0, 102)
    rule.drop(1 * MS, START + 160 * MS)
    # The first of an interval passes.
    assert dropped(rule, 11 * MS, 203, 300) == list(range(204, 300))
    rule.drop(0, START + 300 * MS)
    dropped(rule, 11 * MS, 301, 306)
    assert not rule.overloaded()
    assert dropped(rule, 11 * MS, 306, 400) == []


def test_folly_is_scaled_with_the_service_up_to_its_bound() -> None:
    rule = folly()
    rule.fit(60 * MS)
    assert rule.target_us() == 30 * MS
    rule.fit(1_000 * MS)
    assert rule.target_us() == 50 * MS
    assert rule.timeout_us(500 * MS, 9, START) == 500 * MS


def test_facebook_gives_a_newcomer_little_time_once_the_queue_stands() -> None:
    rule = FacebookRule(CodelSettings())
    assert rule.timeout_us(80 * MS, 0, START) == 80 * MS
    assert rule.timeout_us(80 * MS, 3, START + 100 * MS) == 80 * MS
    assert not rule.overloaded()
    assert rule.timeout_us(80 * MS, 3, START + 101 * MS) == 5 * MS
    assert rule.overloaded()
    assert rule.timeout_us(80 * MS, 0, START + 200 * MS) == 80 * MS
    assert not rule.drop(10_000 * MS, START)
    rule.fit(1)
    assert rule.target_us() == 5 * MS


def test_packets_are_dropped_ever_sooner_while_the_delay_stays_above_the_target() -> None:
    rule = packets()
    drops = dropped(rule, 6 * MS, 0, 500)
    at, expected = 100.0, [100]
    for count in range(1, 12):
        at += 100 / sqrt(count)
        expected.append(round(at))
    assert drops == pytest.approx([ms for ms in expected if ms < 500], abs=2)
    assert rule.overloaded()


def test_one_short_delay_ends_the_dropping_and_a_new_one_takes_an_interval() -> None:
    rule = packets()
    assert dropped(rule, 6 * MS, 0, 150) == [100]
    assert not rule.drop(4 * MS, START + 150 * MS)
    assert not rule.overloaded()
    assert dropped(rule, 6 * MS, 151, 251) == []
    assert dropped(rule, 6 * MS, 251, 252) == [251]


def test_who_begins_to_drop_again_soon_goes_on_at_the_rate_that_was_right() -> None:
    soon, late = packets(), packets()
    for rule in (soon, late):
        dropped(rule, 6 * MS, 0, 1_000)
        rule.drop(0, START + 1_000 * MS)
    assert len(dropped(soon, 6 * MS, 1_001, 1_401)) > 10
    assert len(dropped(late, 6 * MS, 4_000, 4_400)) < 9


def test_no_rule_lets_everybody_wait_for_as_long_as_it_may() -> None:
    rule = QueueRule()
    assert rule.timeout_us(500 * MS, 10**6, START) == 500 * MS
    assert not rule.drop(10**12, START)
    rule.fit(1)
    assert not rule.overloaded()
    assert rule.target_us() == 0
