"""One field of a rules file is set, and nothing else of its text changes."""

from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.field_edit import find_field, set_field

NATIVE = """\
# Limits of the shop.
version: 1
callers:
  quotas:
    reports: {limit: 2, window: 1h}
degrade:
  recommendations: stressed  # first of all
rules:
  - rule_id: play  # what people pay for
    resource_path: /play
    limit: 100  # a minute
    window: 1m
  - {rule_id: play.all, resource_path: "/play/*", limit: 7, window: 1h}
"""
ENVOY = """\
domain: shop
descriptors:
  - key: tenant
    value: acme
    rate_limit: {unit: minute, requests_per_unit: 100}
"""
TOML = """\
version = 1

[[rules]]
rule_id = "play"
limit = 100  # a minute
window = "1m"

[[rules]]
rule_id = "search"
limit = 7
window = "1h"

[callers.quotas."eu.reports"]
limit = 2
window = "1d"

[ degrade ]  # under stress
recommendations = "stressed"  # first of all
"old news" = "hard"
"""


def after(text: str, target: str, value: str, name: str = "a.yaml") -> str:
    place = find_field({name: text}, target)
    return set_field(text, place, value)


@pytest.mark.parametrize(
    ("text", "name", "target", "value", "old", "new"),
    [
        (NATIVE, "a.yaml", "play.limit", "500", "limit: 100  #", "limit: 500  #"),
        (NATIVE, "a.yaml", "play.window", "90s", "window: 1m", "window: 90s"),
        (NATIVE, "a.yaml", "play.all.limit", "9", "limit: 7,", "limit: 9,"),
        (NATIVE, "a.yaml", "play.all.mode", "off", "play.all,", 'play.all, mode: off,'),
        (NATIVE, "a.yaml", "play.resource_path", "/a b", ": /play\n", ': "/a b"\n'),
        (NATIVE, "a.yaml", "play.mode", "shadow", "pay for\n", "pay for\n    mode: shadow\n"),
        (NATIVE, "a.yaml", "quota:reports.limit", "3", "{limit: 2", "{limit: 3"),
        (NATIVE, "a.yaml", "degrade.recommendations", "always", ": stressed", ": always"),
        (NATIVE, "a.yaml", "degrade.history", "hard", "of all\n", "of all\n  history: hard\n"),
        (ENVOY, "a.yml", "shop/tenant=acme.rate_limit.requests_per_unit", "2", ": 100}", ": 2}"),
        (TOML, "a.toml", "play.limit", "500", "limit = 100  #", "limit = 500  #"),
        (TOML, "a.toml", "search.window", "2h", 'window = "1h"', 'window = "2h"'),
        (TOML, "a.toml", "play.burst_capacity", "5", "]]\nrule_id = \"play\"",
         "]]\nburst_capacity = 5\nrule_id = \"play\""),
        (TOML, "a.toml", "quota:eu.reports.limit", "3", "limit = 2", "limit = 3"),
        (TOML, "a.toml", "degrade.recommendations", "always", '"stressed"', '"always"'),
        (TOML, "a.toml", "degrade.old news", "never", '"hard"', '"never"'),
        (TOML, "a.toml", "degrade.history", "hard", "stress\n", 'stress\nhistory = "hard"\n'),
        (TOML, "a.toml", "degrade.v1.5", "hard", "stress\n", 'stress\n"v1.5" = "hard"\n'),
        ("[degrade]", "a.toml", "degrade.a", "hard", "[degrade]", '[degrade]\na = "hard"\n'),
    ],
)  # fmt: skip
def test_a_field_is_set_and_the_rest_stays_as_it_was_written(
    text: str, name: str, target: str, value: str, old: str, new: str
) -> None:
    assert after(text, target, value, name) == text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("version: 1\nrules:\n  play: {limit: 5, window: 1m}  # for all\n", "a.yaml"),
        ("version = 1\n[rules.play]\nlimit = 5 # for all\nwindow = '1m'\n", "a.toml"),
    ],
)
def test_field_of_a_rule_in_a_mapping_is_set(text: str, name: str) -> None:
    changed = text.replace("5", "7", 1)
    assert after(text, "play.limit", "7", name) == changed


def test_what_was_there_before_is_told() -> None:
    assert find_field({"a.yaml": NATIVE}, "play.limit").before == 100
    assert find_field({"a.yaml": NATIVE}, "play.burst_capacity").before is None


@pytest.mark.parametrize("target", ["none.limit", "play", "play.", ".limit", "pla.limit"])
def test_a_rule_that_there_is_not_is_refused(target: str) -> None:
    with pytest.raises(BadValue, match="RULE"):
        find_field({"a.yaml": NATIVE}, target)


def test_a_switch_where_no_file_has_any_is_told_what_to_do() -> None:
    with pytest.raises(BadValue, match="no file has a table `degrade`"):
        find_field({"a.toml": "version = 1\n"}, "degrade.recommendations")


@pytest.mark.parametrize(
    "text",
    [
        'degrade = {a = "hard"}\n',
        'degrade.a = "hard"\n',
        'x = """\n[degrade]\n"""\ndegrade.a = "hard"',
    ],
)
def test_a_table_without_a_head_is_not_guessed_at(text: str) -> None:
    with pytest.raises(BadValue, match=r"a\.toml is not written so that it can be set; edit it"):
        after(text, "degrade.a", "always", "a.toml")


def test_two_rules_of_one_name_are_not_guessed_between() -> None:
    with pytest.raises(BadValue, match=r"a\.yaml, b\.yaml"):
        find_field({"a.yaml": NATIVE, "b.yaml": NATIVE}, "play.limit")


@pytest.mark.parametrize("value", ["", "  ", "1\n2"])
def test_a_value_is_one_line(value: str) -> None:
    with pytest.raises(BadValue, match=r"play\.limit"):
        after(NATIVE, "play.limit", value)


@pytest.mark.parametrize(
    "value", ["{a: 1}", "[1]", "*all", "&x 1", "# no", "a: b", "!x", "x #y", "null"]
)
def test_a_value_is_never_more_than_a_value(value: str) -> None:
    changed = after(NATIVE, "play.resource_path", value)
    assert find_field({"a.yaml": changed}, "play.resource_path").before == value
    assert find_field({"a.yaml": changed}, "play.limit").before == 100


ALIASED = """\
base: &base {limit: 1, window: 1m}
rules:
  - {rule_id: a, <<: *base}
  - {rule_id: b, limit: &n 5, window: 1m}
  - {rule_id: c, limit: *n, window: 1m}
"""


def test_what_another_rule_says_too_is_not_set_for_both() -> None:
    for target in ("b.limit", "c.limit"):
        with pytest.raises(BadValue, match="edit it"):
            after(ALIASED, target, "9")
    assert find_field({"a.yaml": after(ALIASED, "a.limit", "9")}, "a.limit").before == 9
