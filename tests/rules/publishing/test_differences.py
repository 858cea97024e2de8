"""What changes between two states of the files, for people."""

from __future__ import annotations

import json

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import FileChange
from sluicegate.rules.publishing.differences import (
    DIFF_LINES_MAX,
    LINES_MAX,
    RULES_MAX,
    line_changes,
    named_rules,
    rule_changes,
)
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.snapshot import compile_snapshot
from tests.rules.publishing.world import rules

MESH = b"""
domain: web
descriptors:
  - key: path
    value: /login
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 1}
"""


def test_rules_are_known_by_their_names_wherever_they_stand() -> None:
    before = rules(a=1, b=2, c=3).encode()
    after = rules(c=3, d=4, a=9).encode()
    changes = rule_changes([FileChange("x.yaml", before, after)])
    assert changes == (("d",), ("b",), ("a",), 0)


def test_list_and_mapping_of_the_same_rules_are_no_difference() -> None:
    listed = b"version: 1\nrules: [{rule_id: a, limit: 1, window: 1s}]\n"
    by_name = b"version: 1\nrules: {a: {limit: 1, window: 1s}}\n"
    assert rule_changes([FileChange("x.yaml", listed, by_name)]) == ((), (), (), 0)


def test_a_rule_that_moved_to_another_file_is_no_difference() -> None:
    one = rules(a=1).encode()
    changes = rule_changes([FileChange("x.yaml", one, None), FileChange("y.yaml", None, one)])
    assert (changes.changed, "a" in changes.added, "a" in changes.removed) == ((), False, False)


def test_rules_of_a_mesh_are_named_as_in_decisions() -> None:
    names = list(named_rules("m.yaml", MESH))
    assert names == ["web/path=%2Flogin", "web/path=%2Flogin/user"]
    book = book_of(compile_snapshot({"m.yaml": MESH}), version="1")
    assert names == [rule.rule_id for rule in book.mesh.portion(0, "")]
    after = MESH.replace(b"requests_per_unit: 1}", b"requests_per_unit: 2}")
    changes = rule_changes([FileChange("m.yaml", MESH, after)])
    assert changes.changed == ("web/path=%2Flogin/user",)


def test_what_a_file_says_for_all_its_rules_is_told_too() -> None:
    before = b"version: 1\nrules: []\n"
    after = b"version: 1\ndefaults: {algorithm: gcra}\nrules: []\n"
    assert rule_changes([FileChange("x.yaml", before, after)]).added == ("x.yaml: defaults",)


def test_rules_without_a_name_are_known_by_their_place() -> None:
    data = json.dumps({"rules": [{"limit": 1}, 7]}).encode()
    assert named_rules("x.yaml", data) == {"x.yaml: rule 1": {"limit": 1}, "x.yaml: rule 2": 7}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.yaml", b"[1]"),
        ("x.yaml", b"a: [unclosed"),
        ("x.yaml", b"\xff\xfe"),
        ("README.md", b"# rules"),
        ("x.yaml", b"domain: a\ndescriptors: 7"),
        ("x.yaml", b"domain: a\ndescriptors: [7]"),
    ],
)
def test_what_cannot_be_read_has_no_rules(name: str, data: bytes) -> None:
    assert named_rules(name, data) == {}


def test_many_rules_are_counted_and_not_all_named() -> None:
    many = json.dumps({"rules": [{"rule_id": f"r{n}"} for n in range(RULES_MAX + 5)]}).encode()
    changes = rule_changes([FileChange("x.yaml", None, many)])
    assert (len(changes.added), changes.more) == (RULES_MAX, 5)


def test_lines_are_shown_as_a_diff() -> None:
    lines = line_changes(FileChange("x.yaml", b"a\nb\n", b"a\nc\n"))
    assert lines == ["--- a/x.yaml", "+++ b/x.yaml", "@@ -1,2 +1,2 @@", " a", "-b", "+c"]
    assert line_changes(FileChange("x.yaml", None, b"a\n"))[-1] == "+a"


def test_long_files_are_not_compared_line_by_line() -> None:
    long = b"a\n" * (LINES_MAX + 1)
    assert "over" in line_changes(FileChange("x.yaml", long, b"a\n"))[0]
    assert "no text" in line_changes(FileChange("x.yaml", b"\xff", b"a\n"))[0]
    lines = line_changes(FileChange("x.yaml", None, b"a\n" * LINES_MAX))
    assert len(lines) == DIFF_LINES_MAX + 1
    assert lines[-1] == "@@ and more @@"


@pytest.mark.parametrize(
    "wrong",
    [
        {"branch": "main"},
        {"folder": "/limits/"},
        {"deltas": 65},
        {"approvals_min": 0},
        {"pins_max": 1_001},
        {"releases_max": 1},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(BadValue, match=r"publishing\."):
        PublishingSettings(**wrong)  # type: ignore[arg-type]
