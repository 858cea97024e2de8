from __future__ import annotations

import contextlib
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate import Limit
from sluicegate.limits.rule import Failure, Mode, Rule
from sluicegate.rules.match_fields import MATCH_FIELDS
from sluicegate.rules.problems import BadRules
from sluicegate.rules.row_fields import FIELDS
from sluicegate.rules.web.rule import HeaderCost, MatchRule
from sluicegate.rules.web.rule_set import WebRuleSet

SECOND = 1_000_000


def entry(**fields: object) -> MatchRule:
    """The one rule of a book, with what a rule needs if it is not said."""
    return WebRuleSet.of({"rules": {"r": {"key": "address", "limit": "5/s", **fields}}}).entries[0]


def problems(rules: Any) -> dict[str, str]:
    """What is wrong, by field."""
    with pytest.raises(BadRules) as caught:
        WebRuleSet.of(rules)
    return {problem.field: problem.remedy for problem in caught.value.problems}


def problem(**fields: object) -> tuple[str, str]:
    """The one thing that is wrong with a rule: its field and the remedy."""
    ((field, remedy),) = problems(
        {"rules": {"r": {"key": "address", "limit": "5/s", **fields}}}
    ).items()
    return field, remedy


def test_a_rule_has_what_it_says() -> None:
    book = WebRuleSet.parse(
        """
        version: 1
        rules:
          api:
            match:
              path: [/api/**, /v2]
              method: [get, POST]
              header: {X-Plan: free}
              address: 10.0.0.0/8
              user: true
            key: [user, path]
            or_key: address
            limit: 10/s burst 20
            algorithm: token_bucket
            failure: local
            local_share: 0.25
            lease: 10%
            mode: shadow
            cost: 3
            stop: true
        """
    )
    api = book.entries[0]
    assert str(api.match) == (
        "GET or POST /api/** or /v2 with header x-plan free from 10.0.0.0/8 with a user"
    )
    assert (str(api.key), str(api.or_key), api.cost, api.stop) == (
        "user and path",
        "address",
        3,
        True,
    )
    rule = book.rules["api"]
    assert rule == Rule(
        Limit(10, period_us=SECOND, burst=20, algorithm=rule.algorithm or pytest.fail("none")),
        algorithm="token_bucket",
        failure="local",
        local_share=0.25,
        lease="10%",
        mode="shadow",
    )


def test_toml_yaml_and_python_make_the_same_rules() -> None:
    toml = WebRuleSet.parse(
        """
        version = 1
        [defaults]
        failure = "closed"
        [rules.login]
        match = {path = "/login", method = "POST"}
        key = "address"
        limit = ["5/minute", "20/hour"]
        mode = "off"
        """,
        form="toml",
    )
    yaml = WebRuleSet.parse(
        """
        version: 1
        defaults: {failure: closed}
        rules:
          - rule_id: login
            match: {path: /login, method: POST}
            key: address
            limit: 5/minute; 20/hour
            mode: off
        """
    )
    rule = {
        "match": {"path": ["/login"], "method": ["POST"]},
        "key": ["address"],
        "limit": [Limit(5, period_us=60 * SECOND), Limit(20, period_us=3600 * SECOND)],
        "mode": False,
    }
    python = WebRuleSet.of({"defaults": {"failure": "closed"}, "rules": {"login": rule}})
    listed = WebRuleSet.of([{"rule_id": "login", **rule, "failure": "closed"}])
    assert list(map(repr, toml.entries)) == list(map(repr, yaml.entries))
    assert list(map(repr, toml.entries)) == list(map(repr, python.entries))
    assert python.version == listed.version
    assert toml.rules["login"].mode is Mode.OFF


def test_the_version_is_that_of_the_bytes_and_is_stable() -> None:
    text = "version: 1\nrules: {a: {key: address, limit: 1/s}}\n"
    assert WebRuleSet.parse(text).version == sha256(text.encode()).hexdigest()[:12]
    assert WebRuleSet.parse(text + "#").version != WebRuleSet.parse(text).version
    rules = {"rules": {"a": {"key": ["user", "path"], "limit": "1/s", "lease": "auto"}}}
    assert WebRuleSet.of(rules).version == WebRuleSet.of(rules).version
    # Nothing of this process is in it, such as where a function lies.
    assert " at 0x" not in repr(WebRuleSet.of(rules).entries)


def test_defaults_hold_where_a_rule_says_nothing_of_its_own() -> None:
    book = WebRuleSet.of(
        {
            "defaults": {
                "failure": "closed",
                "algorithm": "fixed_window",
                "lease": "auto",
                "or_key": "everyone",
            },
            "rules": {
                "a": {"key": "user", "limit": "5/s"},
                "b": {
                    "key": "user",
                    "limit": "5/s burst 7; 9/hour",
                    "failure": "open",
                    "algorithm": "gcra",
                    "or_key": "skip",
                },
                "c": {"key": "path", "limit": "5/s"},
            },
        }
    )
    a, b, c = book.entries
    assert a.rule is not None
    assert (a.rule.failure, a.rule.lease, str(a.or_key)) == (Failure.CLOSED, "auto", "everyone")
    assert isinstance(a.rule.limits[0], Limit)
    assert a.rule.limits[0].algorithm.value == "fixed_window"
    assert b.rule is not None
    assert b.rule.failure is Failure.OPEN
    assert b.or_key is None
    assert b.rule.lease is None  # a rule with two limits cannot have one
    assert c.or_key is None  # a path is never missing


@pytest.mark.parametrize(
    ("key", "or_key"),
    [
        ("user", "address"),
        ("header:x-a", "address"),
        (["user", "address"], "address"),
        ("address", "None"),
        ("address/48", "None"),
        ("path", "None"),
        ("everyone", "None"),
    ],
)
def test_a_key_that_may_be_missing_falls_back_to_the_address(key: object, or_key: str) -> None:
    assert str(entry(key=key).or_key) == or_key


def test_costs_may_come_from_a_header_and_are_bounded() -> None:
    assert entry(cost="header:X-Cost").cost == HeaderCost("x-cost")
    assert entry(cost={"header": "x-cost", "default": 2, "max": 50}).cost == HeaderCost(
        "x-cost", 2, 50
    )
    cost = HeaderCost("x-cost", 2, 50)
    texts = ["7", "0", "51", "9" * 30, "", "-1", " 7", "1_0", "1.5", "x", "٣", "²"]
    assert list(map(cost.of, texts)) == [7, 1, 50, 50, 2, 2, 2, 2, 2, 2, 2, 2]


def test_an_exemption_needs_nothing_but_what_it_matches() -> None:
    rules = {"rules": {"health": {"match": {"path": "/health"}, "exempt": True}}}
    health = WebRuleSet.of(rules).entries[0]
    assert health.exempt
    assert WebRuleSet.of(rules).rules == {}
    assert not entry(exempt=False).exempt


@pytest.mark.parametrize(
    ("fields", "field", "remedy"),
    [
        ({"limit": "5/fortnight"}, "rules.r.limit", "'fortnight' is no unit"),
        ({"limit": ["5/s", "x"]}, "rules.r.limit[1]", 'write it as "100/minute"'),
        ({"limit": 5}, "rules.r.limit", 'write it as "100/minute"'),
        ({"limit": None}, "rules.r.limit", 'write it as "100/minute"'),
        ({"limit": []}, "rules.r.limit", "from 1 to 16"),
        ({"limit": ["5/s"] * 17}, "rules.r.limit", "from 1 to 16"),
        ({"limit": ["1/s;2/s"] * 9}, "rules.r.limit", "at most 16"),
        (
            {"limit": "5/s burst 9", "algorithm": "fixed_window"},
            "rules.r.limit",
            "fixed_window has no burst",
        ),
        ({"key": None}, "rules.r.key", "say whose requests"),
        ({"key": "ip"}, "rules.r.key", "give address, user"),
        ({"key": 7}, "rules.r.key", "give a text"),
        ({"key": []}, "rules.r.key", "at least one"),
        ({"key": "path.id"}, "rules.r.key", "must have {id}"),
        (
            {"key": "path.id", "match": {"path": ["/a/{id}", "/{id}"]}},
            "rules.r.key",
            "at the same place",
        ),
        (
            {"key": "path.id", "match": {"path": ["/a/{id}", "/a/b"]}},
            "rules.r.key",
            "must have {id}",
        ),
        ({"key": "path", "or_key": "user"}, "rules.r.or_key", "never missing"),
        ({"key": "user", "or_key": "ip"}, "rules.r.or_key", "give address"),
        ({"mode": "dry"}, "rules.r.mode", "enforce, shadow, off"),
        ({"mode": True}, "rules.r.mode", "enforce, shadow, off"),
        ({"mode": []}, "rules.r.mode", "enforce, shadow, off"),
        ({"failure": "ignore"}, "rules.r.failure", "open, closed, local"),
        ({"algorithm": "leaky"}, "rules.r.algorithm", "gcra, token_bucket"),
        ({"local_share": 0}, "rules.r.local_share", "above 0 and up to 1"),
        ({"local_share": True}, "rules.r.local_share", "above 0 and up to 1"),
        ({"local_share": float("nan")}, "rules.r.local_share", "above 0 and up to 1"),
        ({"lease": "0%"}, "rules.r.lease", 'give "auto"'),
        ({"lease": "101%"}, "rules.r.lease", 'give "auto"'),
        ({"lease": 0}, "rules.r.lease", 'give "auto"'),
        ({"lease": 6}, "rules.r.lease", "from 1 to the limit's 5"),
        ({"lease": 1, "limit": "5/s; 9/m"}, "rules.r.lease", "only a rule with one limit"),
        ({"lease": 1, "count_refused": True}, "rules.r.lease", "or count_refused"),
        ({"lease": 1, "algorithm": "sliding_log"}, "rules.r.lease", "sliding_log"),
        ({"count_refused": 1}, "rules.r.count_refused", "true or false"),
        ({"stop": "yes"}, "rules.r.stop", "true or false"),
        ({"exempt": "yes"}, "rules.r.exempt", "true or false"),
        ({"cost": 0}, "rules.r.cost", "from 1 to 2^53"),
        ({"cost": True}, "rules.r.cost", "from 1 to 2^53"),
        ({"cost": "5"}, "rules.r.cost", "from 1 to 2^53"),
        ({"cost": "header:"}, "rules.r.cost.header", "give a header's name"),
        ({"cost": {"header": "x", "max": 0}}, "rules.r.cost.max", "not below the default"),
        ({"cost": {"header": "x", "default": 0}}, "rules.r.cost.default", "from 1 to 2^53"),
        ({"cost": {"header": "x", "mx": 1}}, "rules.r.cost.mx", "did you mean 'max'?"),
        ({"match": []}, "rules.r.match", "give fields of path, method"),
        ({"match": {"paht": "/"}}, "rules.r.match.paht", "did you mean 'path'?"),
        ({"match": {"path": "login"}}, "rules.r.match.path", "start it with a slash"),
        ({"match": {"path": []}}, "rules.r.match.path", "at least one, or leave it out"),
        ({"match": {"path": [7]}}, "rules.r.match.path", "put a number in quotes"),
        ({"match": {"method": "a b"}}, "rules.r.match.method", "give a method"),
        ({"match": {"method": ["GET"] * 33}}, "rules.r.match.method", "at most 32"),
        ({"match": {"header": "x"}}, "rules.r.match.header", "give fields"),
        ({"match": {"header": {"a b": "1"}}}, "rules.r.match.header.a b", "header's name"),
        ({"match": {"header": {"x": 1}}}, "rules.r.match.header.x", "put a number in quotes"),
        ({"match": {"header": {"x": ""}}}, "rules.r.match.header.x", "say false"),
        ({"match": {"header": {"x": "a" * 1_025}}}, "rules.r.match.header.x", "up to 1,024"),
        (
            {"match": {"header": {f"x{n}": True for n in range(17)}}},
            "rules.r.match",
            "at most 16",
        ),
        ({"match": {"address": "10.0.0.1/8"}}, "rules.r.match.address", "write 10.0.0.0/8"),
        ({"match": {"user": 3}}, "rules.r.match.user", "put a number in quotes"),
        ({"rate": "5/s"}, "rules.r.rate", "there are rule_id, resource_path"),
        ({"limits": "5/s"}, "rules.r.limits", "did you mean 'limit'?"),
        ({7: 1}, "rules.r.7", "a field's name is a text"),
    ],
    ids=str,
)
def test_every_error_names_its_field_and_the_remedy(
    fields: dict[Any, object], field: str, remedy: str
) -> None:
    field_named, remedy_text = (
        problem(**fields) if all(isinstance(f, str) for f in fields) else _raw(fields)
    )
    assert field_named == field
    assert remedy in remedy_text


def _raw(fields: dict[Any, object]) -> tuple[str, str]:
    rule: dict[Any, object] = {"key": "address", "limit": "5/s", **fields}
    ((field, remedy),) = problems({"rules": {"r": rule}}).items()
    return field, remedy


@pytest.mark.parametrize(
    ("rules", "field", "remedy"),
    [
        ({"version": 2, "rules": {}}, "version", "version: 1"),
        ({"version": True, "rules": {}}, "version", "version: 1"),
        ({"rules": {}}, "rules", "at least one rule"),
        ({"rules": 3}, "rules", "rules by their names, or a list"),
        ({}, "rules", "rules by their names, or a list"),
        ({"rules": {"a/b": {"key": "user"}}}, "rules.a/b", "up to 64 letters, digits"),
        ({"rules": {"": {}}}, "rules.", "letters, digits"),
        ({"rules": {"x" * 65: {"key": "user"}}}, "rules." + "x" * 64, "letters, digits"),
        ({"rules": {"a": 5}}, "rules.a", "give fields of rule_id"),
        ({"rules": [5]}, "rules[0]", "give fields of rule_id"),
        ({"rules": {"a": {"rule_id": "b", "key": "user"}}}, "rules.a.rule_id", "leave it out"),
        ({"rules": {"a": {"name": "b", "key": "user"}}}, "rules.a.name", "write it as rule_id"),
        ({"rules": {"a": {"key": "user", "per": "user"}}}, "rules.a.per", "leave it out"),
        ({"rules": {"a": {"limit": "1/s"}}}, "rules.a.key", "say whose requests"),
        ({"rule": {}, "rules": []}, "rule", "did you mean 'rules'?"),
        ({"limits": {"a": {}}}, "limits", "sluicegate rules convert"),
        ({"defaults": 1, "rules": {}}, "defaults", "give fields of algorithm"),
        ({"defaults": {"key": "user"}, "rules": {}}, "defaults.key", "did you mean 'or_key'?"),
        ({"defaults": {"mode": "x"}, "rules": {}}, "defaults.mode", "enforce, shadow"),
        ({"defaults": {"or_key": "path.x"}, "rules": {}}, "defaults.or_key", "must have {x}"),
        (
            {"rules": {"a": {"exempt": True}}},
            "rules.a.match",
            "not everything",
        ),
        (
            {"rules": {"a": {"exempt": True, "match": {"path": "/"}, "limit": "1/s"}}},
            "rules.a.limit",
            "an exemption has no limit",
        ),
        (
            {"rules": {"a": {"exempt": True, "match": {"path": "/"}, "mode": "shadow"}}},
            "rules.a.mode",
            "enforce or off",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_with_the_whole_is_told(
    rules: dict[str, object], field: str, remedy: str
) -> None:
    found = problems(rules)
    assert field in found
    assert remedy in found[field]


def test_a_file_must_say_its_version_and_python_need_not() -> None:
    with pytest.raises(BadRules, match="version: 1"):
        WebRuleSet.parse("rules: {a: {key: user, limit: 1/s}}")
    with pytest.raises(BadRules, match="give fields of version"):
        WebRuleSet.parse("")
    assert len(WebRuleSet.of({"rules": {"a": {"key": "user", "limit": "1/s"}}})) == 1


def test_all_that_is_wrong_is_told_at_once_with_its_lines() -> None:
    text = """version: 1
rules:
  login:
    mtch: {path: /login}
    key: adress
    limit: 5/fortnight
  api:
    match:
      header:
        x-plan: [1]
    key: user
    limit: 5/s
    mode: of
"""
    with pytest.raises(BadRules) as caught:
        WebRuleSet.parse(text, source="rules.yaml")
    assert [(problem.line, problem.field) for problem in caught.value.problems] == [
        (4, "rules.login.mtch"),
        (5, "rules.login.key"),
        (6, "rules.login.limit"),
        (10, "rules.api.match.header.x-plan"),
        (13, "rules.api.mode"),
    ]
    assert str(caught.value).startswith("rules.yaml has 5 problems\n  line 4: rules.login.mtch: ")


def test_a_bad_default_is_told_once() -> None:
    rules = {f"r{n}": {"key": "user", "limit": "1/s"} for n in range(9)}
    assert len(problems({"defaults": {"failure": "x", "or_key": "ip"}, "rules": rules})) == 2


def test_two_rules_of_one_name_are_refused() -> None:
    rule = {"rule_id": "a", "key": "user", "limit": "1/s"}
    assert problems([rule, rule]) == {
        "rules[1].rule_id": "another rule has this name; give each its own"
    }
    with pytest.raises(BadRules, match="line 4: 'a' stands here twice"):
        WebRuleSet.parse("version: 1\nrules:\n  a: {}\n  a: {}\n")


def test_the_number_of_rules_is_bounded() -> None:
    rules = {f"r{n}": {"match": {"path": f"/{n}"}, "key": "user", "limit": "1/s"} for n in range(9)}
    assert len(WebRuleSet.of({"rules": rules}, rules_max=9)) == 9
    with pytest.raises(BadRules, match="at most 8"):
        WebRuleSet.of({"rules": rules}, rules_max=8)


def test_rules_that_would_all_match_one_request_are_bounded() -> None:
    def rules(count: int, **match: object) -> dict[str, object]:
        return {f"r{n}": {"match": match, "key": "user", "limit": "1/s"} for n in range(count)}

    WebRuleSet.of({"rules": rules(64, path="/a")})
    with pytest.raises(BadRules, match="up to 65 of them match one request"):
        WebRuleSet.of({"rules": rules(65, path="/a")})


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["5/s", "user", "/a/**", "header:x", "auto", "10%", "1/s;2/s", "*", "skip"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*FIELDS, *MATCH_FIELDS, "path", "method", "header", "address", "user", "max", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["version", "defaults", "rules", "x"]), anything))
def test_random_values_are_a_book_or_bad_rules(value: dict[str, object]) -> None:
    with contextlib.suppress(BadRules):
        assert isinstance(WebRuleSet.of(value), WebRuleSet)


@settings(max_examples=50)
@given(
    st.lists(
        st.dictionaries(st.sampled_from([*FIELDS, *MATCH_FIELDS]), anything), min_size=1, max_size=3
    )
)
def test_random_rules_are_a_book_or_bad_rules(rules: list[dict[str, object]]) -> None:
    limits = {f"r{at}": rule for at, rule in enumerate(rules)}
    with contextlib.suppress(BadRules):
        assert isinstance(WebRuleSet.of({"rules": limits}), WebRuleSet)
