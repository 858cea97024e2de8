"""What a caller may get wrong at the edge: each is refused by its name, with a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from sluicegate import BadValue, Claim, Limit, Limiter, Permits, Rule
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.guard import check_guard
from sluicegate.contracts.observer import Observer
from sluicegate.doors import celery, django, fastapi
from sluicegate.doors.asgi import LimitMiddleware as AsgiMiddleware
from sluicegate.doors.flask import SluicegateLimits
from sluicegate.doors.wsgi import LimitMiddleware as WsgiMiddleware
from sluicegate.rules.web.guard import RulesGuard

MINUTE = 60_000_000
NO_TEXTS: list[Any] = [b"ann", None, ("user", 1), 42, ["ann"], bytearray(b"ann")]
NO_RULES: list[Any] = [5, b"5/m", ["5/m"], ("5/m",), {"a": 1}, 1.5]
RULES = [{"rule_id": "a", "limit": "5/minute", "key": "address"}]


def limiter() -> Limiter:
    return Limiter("5/minute", rules={"login": "5/minute"})


def refused(call: Callable[[], object]) -> BadValue:
    with pytest.raises(BadValue) as caught:
        call()
    assert caught.value.field
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("key", NO_TEXTS, ids=repr)
def test_a_key_is_a_text(key: Any) -> None:
    made, permits = limiter(), Permits(5)
    calls: list[Callable[[], object]] = [
        lambda: made.take(key),
        lambda: made.peek(key),
        lambda: made.wait(key),
        lambda: made.refund(key),
        lambda: made.charge(key),
        lambda: made.reset(key),
        lambda: made.reserve(key),
        lambda: made.judge(Claim(key)),
        lambda: made.take_all(Claim(key), Claim("ann", "login")),
        lambda: asyncio.run(made.atake(key)),
        lambda: asyncio.run(made.apeek(key)),
        lambda: asyncio.run(made.await_(key)),
        lambda: asyncio.run(made.areserve(key)),
        lambda: permits.acquire(key),
        lambda: permits.peek(key),
    ]
    for call in calls:
        error = refused(call)
        assert (error.field, error.value) == ("key", key)
    assert made.keys_tracked() == 0


def test_bytes_are_told_how_they_become_a_key() -> None:
    assert "key.decode()" in refused(lambda: limiter().take(b"ann")).remedy  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", [1.5, "2", None, -1, 1 << 54], ids=repr)
def test_a_cost_is_a_whole_number(cost: Any) -> None:
    made = limiter()
    assert refused(lambda: made.take("ann", cost)).field == "cost"
    assert refused(lambda: made.reserve("ann").settle(cost)).field == "cost"


@pytest.mark.parametrize("rule", NO_RULES, ids=repr)
def test_a_rule_is_a_rate_a_limit_or_a_rule(rule: Any) -> None:
    made = limiter()
    assert refused(lambda: Limiter(rule)).field == "rule"
    assert refused(lambda: made.take("ann", rule=rule)).field == "rule"
    assert refused(lambda: made.limit(rule, key="ann")).field == "rule"
    assert refused(lambda: Limiter(rules={"x": rule})).field == "rules.x"
    assert refused(lambda: made.replace_rules({"x": rule})).field == "rules.x"


@pytest.mark.parametrize("rules", [5, None, ["5/m"], "5/m", {5: "5/m"}, {None: "5/m"}], ids=repr)
def test_rules_are_names_and_rules(rules: Any) -> None:
    assert refused(lambda: Limiter(rules=rules)).field == "rules"
    assert refused(lambda: limiter().replace_rules(rules)).field == "rules"


@pytest.mark.parametrize("limits", [5, None, {"a": 1}, [5], [], b"5/m", [None]], ids=repr)
def test_a_rules_limits_are_rates_or_limits(limits: Any) -> None:
    assert refused(lambda: Rule(limits)).field == "rule.limits"


@pytest.mark.parametrize(
    "setting",
    [
        {"store_url": 5},
        {"store_url": None},
        {"keys_max": "5"},
        {"keys_max": 1.5},
        {"rules_max": None},
        {"waiters_max": "x"},
        {"algorithm": 5},
        {"failure": None},
        {"local_share": "x"},
        {"local_share": None},
        {"lease": 1.5},
        {"lease": ["auto"]},
        {"count_refused": "no"},
        {"prefix": 5},
        {"observer": 5},
        {"glass": 5},
        {"open_store": 5},
        {"clock": 5},
    ],
    ids=repr,
)
def test_a_setting_of_a_limiter_is_refused_by_its_name(setting: dict[str, Any]) -> None:
    (name,) = setting
    assert refused(lambda: Limiter("5/m", **setting)).field == name


@pytest.mark.parametrize(
    "setting",
    [{"failure": 5}, {"mode": None}, {"algorithm": 5}, {"local_share": "x"}, {"lease": 1.5},
     {"count_refused": "no"}],
    ids=repr,
)  # fmt: skip
def test_a_term_of_a_rule_is_refused_by_its_name(setting: dict[str, Any]) -> None:
    (name,) = setting
    assert refused(lambda: Rule("5/m", **setting)).field == f"rule.{name}"


@pytest.mark.parametrize(
    "setting",
    [{"expires_after_s": "x"}, {"store_url": 5}, {"name": 5}, {"failure": 5}, {"local_share": "x"},
     {"keys_max": "x"}, {"waiters_max": None}, {"poll_s": None}, {"prefix": 5}],
    ids=repr,
)  # fmt: skip
def test_a_setting_of_permits_is_refused_by_its_name(setting: dict[str, Any]) -> None:
    (name,) = setting
    assert refused(lambda: Permits(5, **setting)).field == name


@pytest.mark.parametrize(
    ("words", "setting", "field"),
    [
        (("5", MINUTE), {}, "limit.count"),
        ((5.0, MINUTE), {}, "limit.count"),
        ((None, MINUTE), {}, "limit.count"),
        ((5, "1m"), {}, "limit.period_us"),
        ((5, 6e7), {}, "limit.period_us"),
        ((5, MINUTE), {"burst": "3"}, "limit.burst"),
        ((5, MINUTE), {"burst": 1.5}, "limit.burst"),
        ((5, MINUTE), {"algorithm": "gcra"}, "limit.algorithm"),
        ((5, MINUTE), {"algorithm": None}, "limit.algorithm"),
    ],
)
def test_a_part_of_a_limit_is_refused_by_its_name(
    words: tuple[Any, ...], setting: dict[str, Any], field: str
) -> None:
    count, period_us = words
    assert refused(lambda: Limit(count, period_us=period_us, **setting)).field == field


@pytest.mark.parametrize("words", [(5, 60), (5, MINUTE), (5, "m"), (5, 60, 10), (5,)], ids=repr)
def test_a_period_has_its_unit_in_its_name(words: tuple[Any, ...]) -> None:
    error = refused(lambda: Limit(*words))
    assert error.field == "limit.period_us"
    assert "Limit(5, period_us=60_000_000)" in error.remedy
    assert Limit(5, period_us=60).period_us == 60  # who means 60 us may say so


@pytest.mark.parametrize("seconds", ["x", float("nan"), -1], ids=repr)
def test_a_wait_is_a_number_of_seconds(seconds: Any) -> None:
    assert refused(lambda: limiter().wait("a", timeout_s=seconds)).field == "timeout_s"
    assert refused(lambda: Permits(5).acquire("a", wait_s=seconds)).field == "wait_s"


@pytest.mark.parametrize("claim", [5, "ann", ("ann",), None], ids=repr)
def test_what_is_claimed_is_a_claim(claim: Any) -> None:
    assert refused(lambda: limiter().take_all(claim)).field == "claims"
    assert refused(lambda: limiter().take_all(Claim("ann"), claim)).field == "claims"


def test_a_claim_may_be_a_plain_tuple() -> None:
    assert limiter().take_all(("ann", "login", 2)).remaining == 3  # type: ignore[arg-type]


# Guards.


@pytest.mark.parametrize("wrong", [None, 5, "rules.yaml", limiter()])
def test_a_door_wants_a_guard_and_a_limiter_is_none(wrong: Any) -> None:
    for call in (
        lambda: AsgiMiddleware(_app, wrong),
        lambda: WsgiMiddleware(_app, wrong),
        lambda: check_guard(wrong),
    ):
        error = refused(call)
        assert error.field == "guard"
        assert "RulesGuard" in error.remedy


@pytest.mark.parametrize("wrong", [None, 5, "5/minute"], ids=repr)
def test_a_guard_wants_a_limiter(wrong: Any) -> None:
    assert refused(lambda: RulesGuard(RULES, wrong)).field == "limiter"


@pytest.mark.parametrize("wrong", [None, 5, limiter()])
def test_a_guard_wants_rules(wrong: Any) -> None:
    assert refused(lambda: RulesGuard(wrong, limiter())).field == "rules"


def test_a_second_guard_does_not_replace_the_rules_of_the_first() -> None:
    made = limiter()
    first = RulesGuard(RULES, made)
    error = refused(lambda: RulesGuard(RULES, made))
    assert error.field == "limiter"
    assert made.limits_of("a")
    first.close()
    second = RulesGuard(RULES, made)
    first.close()  # once more, and the second stays where it is
    refused(lambda: RulesGuard(RULES, made))
    del second
    assert RulesGuard(RULES, made).judge is not None  # nobody holds the second any more


def _app(*words: Any) -> Any:
    raise AssertionError("nobody is asked")


# What a user may replace.


def test_a_limiter_is_patched_in_every_build() -> None:
    with patch.object(Limiter, "take", return_value="patched"):
        assert limiter().take("ann") == "patched"
    assert limiter().take("ann")


def test_a_contract_is_subclassed_in_every_build() -> None:
    class OwnClock(Clock):
        def now_us(self) -> int:
            return 7

    class Counts(Observer):
        asks = 0

        def record_decision(self, *words: Any) -> None:
            self.asks += 1

        def record_round_trip(self, *words: Any) -> None: ...

        def record_lease(self, *words: Any) -> None: ...

    counts = Counts()
    assert Limiter("5/minute", clock=OwnClock(), observer=counts).take("ann")
    assert counts.asks == 1


NO_LIMITERS: list[Any] = [
    "5/minute",
    5,
    b"5/minute",
    Limit(5, period_us=MINUTE),
    Rule("5/minute"),
    {"a": 1},
    Limiter,
    RulesGuard(RULES, Limiter()),
]


@pytest.mark.parametrize("value", NO_LIMITERS, ids=lambda value: type(value).__name__)
def test_what_is_no_limiter_is_refused_where_a_framework_is_given_it(value: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: SluicegateLimits(limiter=value),
        lambda: fastapi.limit(value, "5/minute", key="a"),
        lambda: celery.limit(value, "5/minute"),
        lambda: django.ratelimit("5/minute", limiter=value),
        lambda: RulesGuard(RULES, value),
    ]
    for call in calls:
        error = refused(call)
        assert (error.field, error.value) == ("limiter", value)
        assert "Limiter(" in error.remedy


def test_no_limiter_at_all_is_refused_where_one_is_needed() -> None:
    for call in (
        lambda: fastapi.limit(None, "5/minute", key="a"),  # type: ignore[arg-type]
        lambda: celery.limit(None, "5/minute"),  # type: ignore[arg-type]
        lambda: SluicegateLimits().limit("5/minute"),
    ):
        assert refused(call).field == "limiter"
    fastapi.limit(limiter(), "5/minute", key="a")  # and a limiter is one
    SluicegateLimits(limiter=limiter()).limit("5/minute")
    celery.limit(limiter(), "5/minute")
    django.ratelimit("5/minute", limiter=limiter())
