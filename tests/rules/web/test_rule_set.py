from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.limits.rule import Mode
from sluicegate.rules.web.rule_set import GROUP_MIN, WebRuleSet
from tests.rules.web.arrivals import PlainArrival
from tests.rules.web.plain_reading import PlainReading, arrivals, rules_with


def book(**rules: dict[str, object]) -> WebRuleSet:
    """Rules that need only say what is of interest."""
    made: dict[str, object] = {
        name: rule if rule.get("exempt") else {"key": "everyone", "limit": "5/s", **rule}
        for name, rule in rules.items()
    }
    return WebRuleSet.of({"rules": made})


def matching_rules(rules: WebRuleSet, *arrivals: PlainArrival) -> list[list[str]]:
    """The names of the rules that have a say."""
    return [[str(claim.rule) for claim in rules.claims(came)] for came in arrivals]


def test_every_rule_that_matches_has_a_say_in_the_order_of_the_file() -> None:
    rules = book(
        everything={},
        api={"match": {"path": "/api/**"}},
        users={"match": {"path": "/api/users/{id}"}},
        me={"match": {"path": "/api/users/me"}},
        posts={"match": {"path": "/api/users/me", "method": ["POST", "put"]}},
    )
    assert matching_rules(
        rules,
        PlainArrival("/"),
        PlainArrival("/api"),
        PlainArrival("/api/users/7"),
        PlainArrival("/api/users/me", "PUT"),
    ) == [
        ["everything"],
        ["everything", "api"],
        ["everything", "api", "users"],
        ["everything", "api", "users", "me", "posts"],
    ]


def test_what_no_rule_is_about_claims_nothing() -> None:
    rules = book(api={"match": {"path": "/api/**", "method": "GET"}})
    assert matching_rules(
        rules, PlainArrival("/"), PlainArrival("/api/x", "POST"), PlainArrival("/api/x", "get")
    ) == [[], [], []]


def test_headers_users_and_addresses_are_matched() -> None:
    rules = book(
        exact={"match": {"header": {"X-Plan": "free"}}},
        one_of={"match": {"header": {"x-plan": ["free", "trial-*"]}}},
        any={"match": {"header": {"x-plan": "*"}}},
        present={"match": {"header": {"x-plan": True}}},
        absent={"match": {"header": {"x-plan": False}}},
        ann={"match": {"user": "ann"}},
        staff={"match": {"user": "*@staff"}},
        anonymous={"match": {"user": False}},
        inside={"match": {"address": ["10.0.0.0/8", "2001:db8::/32"]}},
        both={"match": {"header": {"x-plan": "free", "x-beta": True}, "user": True}},
    )
    away = "192.0.2.1"
    assert matching_rules(
        rules,
        PlainArrival(address=away),
        PlainArrival(address=away, headers={"x-plan": "free"}),
        PlainArrival(address=away, headers={"x-plan": "trial-7"}),
        PlainArrival(address=away, headers={"x-plan": "FREE"}),
        PlainArrival(address=away, user="ann"),
        PlainArrival(address="2001:db8::7", user="bob@staff"),
        PlainArrival(address=away, user="x", headers={"x-plan": "free", "x-beta": "1"}),
    ) == [
        ["absent", "anonymous"],
        ["exact", "one_of", "any", "present", "anonymous"],
        ["one_of", "any", "present", "anonymous"],
        ["any", "present", "anonymous"],
        ["absent", "ann"],
        ["absent", "staff", "inside"],
        ["exact", "one_of", "any", "present", "both"],
    ]


def test_stop_ends_the_search_where_it_applies() -> None:
    rules = book(
        upload={"match": {"path": "/upload"}, "key": "user", "or_key": "skip", "stop": True},
        rest={},
    )
    # Without its key the rule does not apply, and so stops nothing.
    assert matching_rules(
        rules, PlainArrival("/upload", user="ann"), PlainArrival("/upload"), PlainArrival("/")
    ) == [
        ["upload"],
        ["rest"],
        ["rest"],
    ]


def test_a_trial_stops_nothing_and_what_is_off_is_not_there() -> None:
    rules = book(trial={"stop": True, "mode": "shadow"}, off={"mode": "off", "stop": True}, rest={})
    assert matching_rules(rules, PlainArrival()) == [["trial", "rest"]]
    assert rules.rules["off"].mode is Mode.OFF


def test_an_exemption_ends_all_wherever_it_stands() -> None:
    rules = book(
        everything={},
        health={"match": {"path": "/health"}, "exempt": True},
        inside={"match": {"path": "/api/**", "address": "10.0.0.0/8"}, "exempt": True},
        off={"match": {"path": "/x"}, "exempt": True, "mode": "off"},
        api={"match": {"path": "/api/**"}},
    )
    out = "192.0.2.1"
    assert matching_rules(
        rules,
        PlainArrival("/health"),
        PlainArrival("/api/x"),
        PlainArrival("/api/x", address=out),
        PlainArrival("/x"),
    ) == [[], [], ["everything", "api"], ["everything"]]
    assert [one.entry.rule_id for one in rules.matches(PlainArrival("/health"))] == ["health"]
    assert [one.entry.rule_id for one in rules.matches(PlainArrival("/api/x"))] == ["inside"]


def test_a_rule_without_its_key_falls_back_and_without_that_does_not_apply() -> None:
    rules = book(
        user={"key": "user"},
        tenant={"key": "header:x-tenant", "or_key": "skip"},
        address={"key": "address"},
        shared={"key": "user", "or_key": "everyone"},
    )
    missed: list[str] = []
    claims = rules.claims(PlainArrival(user="ann", headers={"x-tenant": "acme"}), missed.append)
    assert [claim.key for claim in claims] == [
        "user:ann",
        "header:x-tenant:acme",
        "address:10.0.0.1",
        "user:ann",
    ]
    assert missed == []
    claims = rules.claims(PlainArrival(), missed.append)
    assert [claim.key for claim in claims] == ["address:10.0.0.1", "address:10.0.0.1", "everyone"]
    assert missed == ["tenant"]
    missed.clear()
    claims = rules.claims(PlainArrival(address=""), missed.append)
    assert [(claim.rule, claim.key) for claim in claims] == [("shared", "everyone")]
    assert missed == ["user", "tenant", "address"]


def test_costs_go_with_the_claims() -> None:
    rules = book(two={"cost": 2}, said={"cost": {"header": "x-cost", "max": 10}})
    assert [claim.cost for claim in rules.claims(PlainArrival(headers={"x-cost": "7"}))] == [2, 7]
    assert [claim.cost for claim in rules.claims(PlainArrival(headers={"x-cost": "99"}))] == [2, 10]
    assert [claim.cost for claim in rules.claims(PlainArrival())] == [2, 1]


def test_many_rules_for_values_of_one_header_are_looked_up() -> None:
    read: list[str] = []

    class Counting(PlainArrival):
        def header(self, name: str) -> str:
            read.append(name)
            return super().header(name)

    tenants: dict[str, dict[str, object]] = {
        f"t{n}": {"match": {"header": {"x-tenant": [f"tenant-{n}", f"alias-{n}"]}}}
        for n in range(500)
    }
    rules = book(first={}, **tenants, last={"match": {"header": {"x-tenant": "tenant-7"}}})
    assert matching_rules(
        rules,
        Counting(headers={"x-tenant": "tenant-7"}),
        Counting(headers={"x-tenant": "alias-8"}),
        Counting(headers={"x-tenant": "nobody"}),
    ) == [["first", "t7", "last"], ["first", "t8"], ["first"]]
    assert len(read) < 10


def test_many_rules_for_networks_are_not_taken_for_values() -> None:
    networks = [f"10.{n}.0.0/16" for n in range(2 * GROUP_MIN)]
    limits_by_name: dict[str, dict[str, object]] = {
        f"n{at}": {"match": {"address": network}} for at, network in enumerate(networks)
    }
    rules = book(**limits_by_name)
    assert matching_rules(rules, PlainArrival(address="10.3.4.5")) == [["n3"]]


def test_a_book_tells_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("version: 1\nrules: {a: {key: user, limit: 1/s}}")
    rules = WebRuleSet.load(file)
    assert rules.source == str(file)
    assert len(rules) == 1
    assert rules.version in repr(rules)
    with pytest.raises(TypeError):
        rules.rules["a"] = rules.rules["a"]  # type: ignore[index]


PATHS: list[str | list[str]] = [
    "/a", "/a/**", "/{x}", "/{x}/b", "/a/{x}", "/{x}/{y}", "/**", ["/a", "/b"],
]  # fmt: skip


@settings(max_examples=80)
@given(
    st.lists(rules_with(PATHS), min_size=1, max_size=3 * GROUP_MIN), st.lists(arrivals, max_size=8)
)
def test_the_compiled_book_says_what_the_plain_reading_says(
    fields: list[dict[str, Any]], came: list[PlainArrival]
) -> None:
    document = {"rules": {f"r{at}": rule for at, rule in enumerate(fields)}}
    rules, plain = WebRuleSet.of(document), PlainReading(document)
    for one in came:
        claims = [(claim.rule, claim.key, claim.cost) for claim in rules.claims(one)]
        assert claims == plain.claims(one), one
        matched = [(it.entry.rule_id, it.key, it.cost) for it in rules.matches(one)]
        assert claims == [it for it in matched if it[1]]
