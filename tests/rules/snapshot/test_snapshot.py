from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.problems import BadRules
from sluicegate.rules.service_rule_set import ServiceRuleSet, find_files
from sluicegate.rules.snapshot.codec import pack
from sluicegate.rules.snapshot.snapshot import RulesSnapshot, compile_snapshot, rules_files
from tests.rules.snapshot.stories import BOOKS, Files, dumped, outcome, written


def rules(*fields: Mapping[str, object], **top: object) -> bytes:
    return dumped(
        {
            "version": 1,
            **top,
            "rules": [{"limit": 5, "window": "1m", **one} for one in fields],
        }
    )


def test_the_files_are_those_that_a_folder_of_them_would_give(tmp_path: Path) -> None:
    names = [
        "b.yaml", "a/c.yml", "a.toml", "a/b/c.YAML", "readme.md", ".hidden.yaml", ".git/x.yaml",
        "#x.yaml", "~x.yaml", "a-b/c.yaml", "1/2/3/4/5/6/7/8/x.yaml", "1/2/3/4/5/6/7/8/9/x.yaml",
    ]  # fmt: skip
    written(tmp_path, dict.fromkeys(names, b""))
    assert rules_files(dict.fromkeys(names, b"")) == [one.name for one in find_files([tmp_path])]


BAD: list[Files] = [
    {"a.yaml": b"version: 1\nrules:\n- rule_id: a\n  limit: 0\n  window: 1m\n"},
    {"a.yaml": b"version: 1\nrules:\n- {rule_id: a, limit: 5, window: 1m, resource_path: a}\n"},
    {"a.yaml": rules({"rule_id": "a"}), "b.yaml": rules({"rule_id": "a"})},
    {"a.yaml": rules({"rule_id": "a"}, {"rule_id": "b"})},
    {"a.yaml": rules(callers={}), "b.yaml": rules(callers={})},
    {"a.yaml": b"domain: d\n", "b.yaml": b"domain: d\n"},
    {"a.yaml": b"neither: 1\n"},
    {"a.yaml": b"\xff"},
    {"a.toml": b"version = "},
]


@pytest.mark.parametrize("files", BAD)
def test_what_is_wrong_is_told_as_it_is_of_files(tmp_path: Path, files: Files) -> None:
    folder = written(tmp_path, files)
    loaded = outcome(lambda: ServiceRuleSet.load([folder]), folder)
    assert isinstance(loaded, str)
    assert outcome(lambda: compile_snapshot(files)) == loaded


def test_bounds_are_kept(tmp_path: Path) -> None:
    files = {
        "a.yaml": rules({"rule_id": "a", "resource_path": "/a"}),
        "b.yaml": rules({"rule_id": "b", "limit": 6}),
    }
    compile_snapshot(files, rules_max=2, shared_limits_max=2, files_max=2, file_bytes_max=200)
    for bounds in (
        {"rules_max": 1},
        {"shared_limits_max": 1},
        {"files_max": 1},
        {"file_bytes_max": 20},
    ):
        with pytest.raises(BadValue):
            compile_snapshot(files, **bounds)  # type: ignore[arg-type]
    for none in ({}, {"readme.md": b""}):
        with pytest.raises(BadValue, match="yaml"):
            compile_snapshot(none)


def test_a_domain_may_stand_in_two_files_if_that_is_said() -> None:
    node = b"{key: %s, rate_limit: {unit: minute, requests_per_unit: 3}}"
    files = {
        f"{name}.yaml": b"{domain: d, descriptors: [%s]}" % (node % name.encode()) for name in "ab"
    }
    assert compile_snapshot(files, merge_domains=True).rules == 2
    with pytest.raises(BadRules, match="merge_domains"):
        compile_snapshot(files)


def test_what_json_has_not_cannot_be_in_a_snapshot() -> None:
    text = b'domain = "d"\n[[descriptors]]\nkey = "k"\nmetadata = {since = 2026-01-01}\n'
    with pytest.raises(BadRules, match="in quotes"):
        compile_snapshot({"a.toml": text})


def content(*fields: Mapping[str, object], **top: object) -> str:
    return compile_snapshot({"a.yaml": rules(*fields, **top)}).content


def test_the_content_is_what_is_said() -> None:
    one = {"rule_id": "a", "resource_path": "/a"}
    base = content(one)
    assert content(one) == base
    assert len(base) == 64
    for other in (
        {**one, "limit": 6},
        {**one, "rule_id": "b"},
        {**one, "resource_path": "/b"},
        {**one, "client_type": "TV"},
        {**one, "priority_bucket": "BULK"},
        {**one, "mode": "off"},
        {**one, "mode": "shadow"},
    ):
        assert content(other) != base, other
    assert content(one, defaults={"failure": "closed"}) != base
    assert content(one, callers={"pins": ["ann"]}) != base


@settings(max_examples=25)
@given(files=BOOKS)
def test_the_content_does_not_depend_on_how_it_came_to_be(files: Files) -> None:
    first = outcome(lambda: compile_snapshot(files))
    if isinstance(first, str):
        return
    names = sorted(files, reverse=True)
    other = compile_snapshot({name: files[name] for name in names})
    third = compile_snapshot(files, before=first)
    assert first.content == other.content == third.content
    assert pack(first) == pack(other) == pack(third)
    assert all(mine is theirs for mine, theirs in zip(third.pages, first.pages, strict=True))


def test_what_has_changed_is_not_taken_from_before() -> None:
    before = compile_snapshot({"a.yaml": rules({"rule_id": "a", "resource_path": "/a"})})
    files = {"a.yaml": rules({"rule_id": "b", "resource_path": "/a"})}
    after = compile_snapshot(files, before=before)
    assert after.content == compile_snapshot(files).content != before.content


def test_rules_that_apply_together_keep_the_order_of_the_files() -> None:
    def of(*windows: str) -> RulesSnapshot:
        return compile_snapshot(
            {"a.yaml": rules(*[{"rule_id": f"r{window}", "window": window} for window in windows])}
        )

    assert of("1m", "1h").digests != of("1h", "1m").digests
