from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise, takewhile

import pytest

from sluicegate.apps.up.callers import PROFILES, DemoRequest, demo_requests
from sluicegate.apps.up.settings import DEMO_RULES, parse_rules
from sluicegate.testing import START_US, SeededChance

SECOND = 1_000_000
RULES = parse_rules(DEMO_RULES)


@cache
def asks(
    rules: str | None = None, load: int = 400, seconds: int = 376, seed: int = 1
) -> list[DemoRequest]:
    parsed = RULES if rules is None else parse_rules([rules])
    coming = demo_requests(parsed, load, SeededChance(seed), START_US)
    return list(takewhile(lambda ask: ask.at_us < START_US + seconds * SECOND, coming))


def test_asks_come_in_order_and_the_same_for_the_same_seed() -> None:
    first = asks(seconds=10)
    assert first == sorted(first, key=lambda ask: ask.at_us)
    assert first == asks.__wrapped__(seconds=10)
    assert first != asks(seconds=10, seed=2)


def test_shares_make_a_whole_and_the_load_is_about_what_was_wished() -> None:
    assert sum(profile.share for profile in PROFILES) == pytest.approx(1)
    # So long that of every tide about as much has come as has gone.
    assert len(asks()) / 376 == pytest.approx(400, rel=0.1)
    assert len(asks(load=50)) / 376 == pytest.approx(50, rel=0.1)


def test_the_crawler_asks_ten_times_its_limit_and_the_apps_stay_below() -> None:
    counts = Counter(ask.key for ask in asks())
    limit = RULES[0].limit.count * 376
    assert counts["crawler-1"] / limit == pytest.approx(10, rel=0.15)
    apps = [count for key, count in counts.items() if key.startswith("app-")]
    assert len(apps) == 13
    assert max(apps) < limit


def test_of_many_small_users_the_first_asks_most() -> None:
    counts = Counter(ask.key for ask in asks() if ask.rule == "pages")
    assert counts.most_common(1)[0][0] == "user-1"
    assert len(counts) > 1_000
    assert counts["user-1"] == pytest.approx(10 * counts["user-10"], rel=0.4)


def test_dashboards_ask_in_bursts() -> None:
    of_one = [ask.at_us for ask in asks() if ask.key == "dashboard-1"]
    gaps = [b - a for a, b in pairwise(of_one)]
    assert sum(gap < 10_000 for gap in gaps) > 0.9 * len(gaps)


def test_the_batch_asks_for_more_than_one_and_now_and_then_for_too_much() -> None:
    costs = [ask.cost for ask in asks() if ask.rule == "export"]
    assert min(costs) == 1
    assert max(costs) == 601
    assert 0.001 < costs.count(601) / len(costs) < 0.03
    assert sum(costs) / len(costs) > 5


def test_other_rules_get_callers_too_whatever_they_allow() -> None:
    strange = "a = 1/us; b = 1/year; c = 9007199254740992/s; d = 1/s burst 9007199254740992"
    callers_asks = asks(strange, load=100, seconds=20)
    assert {ask.rule for ask in callers_asks} == {"a", "b", "c", "d"}
    assert all(1 <= ask.cost <= 1 << 53 for ask in callers_asks)
    assert len(callers_asks) > 500
