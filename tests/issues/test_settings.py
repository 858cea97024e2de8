"""Settings: a slip of the pen that nobody notices until the limits were needed.

In several libraries a limit in the wrong shape, or under a wrong name, is silently not applied, or
fails at the first request: https://github.com/laurentS/slowapi/issues/239
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from fastapi import FastAPI
from flask import Flask

from sluicegate import BadValue, Limiter, Rule
from sluicegate.doors import django as django_door
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.fastapi import by_address, limit
from sluicegate.doors.flask import SluicegateLimits
from sluicegate.rules.problems import BadRules
from sluicegate.rules.web.guard import RulesGuard
from tests.doors.project import set_up

BOOK: dict[str, Any] = {"rules": {"all": {"limit": "1/minute", "key": "everyone"}}}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"rule": "100/minuet"}, "rule"),
        ({"rule": "100"}, "rule"),
        ({"rule": ""}, "rule"),
        ({"rules": {"login": "five a minute"}}, "rules.login"),
        ({"rules": {"": "5/minute"}}, "rules"),
        ({"algorithm": "sliding-window"}, "algorithm"),
        ({"failure": "opne"}, "failure"),
        ({"local_share": 20}, "local_share"),
        ({"lease": "10"}, "lease"),
        ({"keys_max": 0}, "keys_max"),
        ({"store_url": "memry:"}, "store_url"),
        ({"store_url": "redis:localhost"}, "store_url"),
    ],
    ids=str,
)
def test_a_wrong_setting_of_a_limiter_is_named_at_once(
    settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadValue) as error:
        Limiter(**settings)
    assert error.value.field == field


@pytest.mark.parametrize(
    "url",
    [
        "redi://localhost",
        "memory://x",
        "redis://localhost?timeout=5",
        "redis://localhost?timeout_ms=soon",
        "redis://localhost/zero",
        "redis+sentinel://localhost:26379",
        "memcached://localhost",
    ],
)
def test_a_wrong_store_url_is_an_error_before_anything_is_asked(url: str) -> None:
    pytest.importorskip("hiredis")
    with pytest.raises(BadValue):
        Limiter("1/minute", store_url=url)


@pytest.mark.parametrize("name", ["algoritm", "store", "storage_uri", "fail_open", "rate"])
def test_a_setting_that_is_not_there_is_an_error(name: str) -> None:
    limiter: Any = Limiter
    with pytest.raises(TypeError, match=name):
        limiter("1/minute", **{name: "x"})
    rule: Any = Rule
    with pytest.raises(TypeError, match=name):
        rule("1/minute", **{name: "x"})


def test_a_rule_that_nobody_has_named_is_an_error_and_no_free_pass() -> None:
    limiter = Limiter(rules={"login": "5/minute"})
    with pytest.raises(BadValue, match="lgoin"):
        limiter.take("ann", rule="lgoin")
    with pytest.raises(BadValue, match="lgoin"):
        limiter.limit("lgoin", key="ann")


WRONG = {
    "rules.yaml": "version: 1\nrules:\n  all: {limti: 1/minute, key: everyone}\n",
    "rules.toml": 'version = 1\n[rules.all]\nlimti = "1/minute"\nkey = "everyone"\n',
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_word_in_a_rule_file_is_an_error_that_tells_the_right_one(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    file.write_text(WRONG[name])
    with pytest.raises(BadRules, match=r"limti.*limit"):
        RulesGuard(file, Limiter())


def test_a_list_of_rates_is_a_list_and_a_text_is_one() -> None:
    # slowapi takes a text where it wants a list letter by letter.
    limiter = Limiter()
    several = ["1/minute", "2/hour"]
    for limit_, counts in ((several, [1, 2]), ("1/minute; 2/hour", [1, 2]), ("1/minute", [1])):
        RulesGuard({"rules": {"all": {"limit": limit_, "key": "everyone"}}}, limiter)
        assert [one.count for one in limiter.limits_of("all")] == counts
        assert [one.count for one in limiter.limits_of(Rule(limit_))] == counts
    with pytest.raises(BadRules):
        RulesGuard({"rules": {"all": {"limit": {"1/minute": 1}, "key": "everyone"}}}, limiter)


def test_a_wrong_setting_of_a_door_is_told_when_the_door_is_made() -> None:
    guard = RulesGuard(BOOK, Limiter())
    for wrong in ({"headers": "itef"}, {"trust_proxies": -1}):
        settings: Any = wrong
        with pytest.raises(BadValue):
            LimitMiddleware(FastAPI(), guard, **settings)
    with pytest.raises(TypeError):
        LimitMiddleware(FastAPI(), guard, exempts=["/"])  # type: ignore[call-arg]
    limiter = Limiter(rules={"login": "5/minute"})
    with pytest.raises(BadValue, match="lgoin"):
        limit(limiter, "lgoin", key=by_address())
    with pytest.raises(BadValue, match="lgoin"):
        SluicegateLimits(Flask("t"), limiter=limiter).limit("lgoin")


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


def test_a_wrong_limit_of_a_django_view_is_told_when_the_view_is_decorated() -> None:
    set_up("tests.doors.test_django")
    limiter = Limiter(rules={"login": "5/minute"})
    with pytest.raises(BadValue, match="lgoin"):
        django_door.ratelimit("lgoin", limiter=limiter)(view)
    with pytest.raises(BadValue, match="usr"):
        django_door.ratelimit("login", key="usr", limiter=limiter)


@pytest.mark.parametrize(
    "wrong",
    [
        {"SLUICEGATE_GUARD": None},
        {"SLUICEGATE_HEADERS": "itef"},
        {"SLUICEGATE_TRUST_PROXIES": -1},
        {"SLUICEGATE_TRUST_PROXY": 1},
        {"SLUICEGATE_EXEMPTS": ["/health"]},
    ],
    ids=str,
)
def test_a_wrong_django_setting_is_an_error_when_the_project_starts(wrong: dict[str, Any]) -> None:
    set_up("tests.doors.test_django")
    with (
        override_settings(**{"SLUICEGATE_GUARD": RulesGuard(BOOK, Limiter()), **wrong}),
        pytest.raises(BadValue, match=r"SLUICEGATE|headers|trust_proxies"),
    ):
        django_door.LimitMiddleware(view)
