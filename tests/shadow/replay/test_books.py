"""Rulebooks of a replay, from the files of a commit."""

from __future__ import annotations

import json

import pytest

from sluicegate.rules.problems import BadRules
from sluicegate.shadow.replay_rules import ReplayRules, enforce_trials, is_rules_file
from sluicegate.shadow.rule_texts import rules_of_changed
from tests.shadow.replay.captures import envoy, limit, native


def test_only_what_the_service_would_read_is_read() -> None:
    files = {
        "README.md": b"rules: none",
        ".hidden/a.yaml": b"rules: none",
        "a/~b.yaml": b"x",
        "teams/own.yaml": native(limit("one", 1))["own.yaml"],
    }
    made = ReplayRules(files)
    assert [*made.files] == ["teams/own.yaml"]
    assert len(made.book) == 1
    assert [name for name in files if is_rules_file(name)] == ["teams/own.yaml"]


def test_no_files_are_a_book_that_admits_all() -> None:
    made = ReplayRules({"README.md": b""})
    assert made.empty
    assert len(made.book) == 0


def test_problems_name_the_file_of_the_commit() -> None:
    with pytest.raises(BadRules) as caught:
        ReplayRules({"teams/own.yaml": b"version: 1\nrules: 3\n"})
    assert caught.value.source == "teams/own.yaml"


def test_trials_are_enforce_trials_wherever_they_stand() -> None:
    files = {
        **native(
            limit("one", 1, mode="shadow"),
            limit("two", 2, mode="off", resource_path="/a"),
            callers={"quotas": {"ann": {"limit": 3, "window": "1s", "mode": "shadow"}}},
        ),
        "tried.yaml": json.dumps(
            {
                "version": 1,
                "defaults": {"mode": "shadow"},
                "rules": [limit("three", 3, resource_path="/b")],
            }
        ).encode(),
        "three.toml": b'version = 1\n[[rules]]\nrule_id = "four"\nlimit = 1\nmode = "shadow"\n'
        b'window = "1s"\nresource_path = "/c"\n',
        **envoy(
            {
                "key": "a",
                "shadow_mode": True,
                "rate_limit": {"unit": "day", "requests_per_unit": 1},
                "metadata": {"mode": "shadow"},
            },
            {"key": "b", "mode": "shadow", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
        ),
    }
    for trials_enforced in (False, True):
        made = ReplayRules(files, trials_enforced=trials_enforced).book
        natives = [made.resources.rule(name) for name in ("one", "three", "four")]
        natives.append(made.resources.priorities.callers.quotas["ann"])
        assert {rule.kind.shadow for rule in natives if rule} == {not trials_enforced}
        assert made.resources.rule("two") is None
        shop = [made.mesh.find("shop", [(key, "x")]) for key in "ab"]
        assert {rule.form.shadow for rule in shop if rule} == {not trials_enforced}


def test_a_file_without_trials_stays_as_it_is() -> None:
    (data,) = native(limit("one", 1)).values()
    assert enforce_trials("own.yaml", data, "sluicegate") is data
    document = envoy({"key": "a", "metadata": {"mode": "shadow"}})["shop.yaml"]
    assert enforce_trials("shop.yaml", document, "sluicegate") is document


def test_rules_of_files_that_both_share_are_not_compared() -> None:
    one = ReplayRules({**native(limit("one", 1)), **envoy({"key": "a"})})
    other = ReplayRules({**native(limit("one", 2)), **envoy({"key": "a"})})
    before, after = rules_of_changed(one, other)
    assert [*before] == [*after] == [("native", "one")]
    assert rules_of_changed(one, one) == ({}, {})


def test_quotas_of_callers_are_rules_too() -> None:
    before, after = [
        ReplayRules(native(callers={"quotas": {"ann": quota}})) for quota in ("5/10s", "6/10s")
    ]
    earlier, now = rules_of_changed(before, after)
    assert [*earlier] == [*now] == [("native", "quota:ann")]
    assert earlier != now


def test_what_a_rule_says_is_told_in_words() -> None:
    files = native(
        limit("a", 5, 60, resource_path="/a", client_type="TV", priority_bucket="BULK"),
        limit("b", 2000, 3600, algorithm="gcra", burst_capacity=2, mode="shadow"),
        limit("c", 3, 90, algorithm="sliding_window", per="resource", resource_path="/c"),
    )
    earlier, _ = rules_of_changed(ReplayRules(files), ReplayRules({}))
    assert {name: one.text for (_, name), one in earlier.items()} == {
        "a": "5 in 1 min (fixed_window) per user on /a for TV of BULK",
        "b": "2,000 in 1 h, 4,000 at once (gcra) per user (tried out)",
        "c": "3 in 90 s per resource on /c",
    }
