from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.codec import pack, unpack
from sluicegate.rules.snapshot.sections import DamagedSnapshot
from sluicegate.rules.snapshot.snapshot import RulesSnapshot, compile_snapshot
from tests.rules.snapshot.stories import BOOKS, Files, contents_of, dumped, outcome, written


@settings(max_examples=25)
@given(files=BOOKS, semantics=st.sampled_from(list(Semantics)))
def test_a_book_of_a_snapshot_decides_as_one_of_the_files(
    files: Files, semantics: Semantics
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = written(Path(name), files)
        loaded = outcome(lambda: ServiceRuleSet.load([folder], semantics=semantics), folder)
    made = outcome(lambda: compile_snapshot(files, semantics=semantics))
    if isinstance(made, str) or isinstance(loaded, str):
        assert made == loaded
        return
    book = book_of(unpack(pack(made)), version="7")
    assert contents_of(book) == contents_of(loaded)
    assert book.version == "7"


@settings(max_examples=25)
@given(files=st.tuples(BOOKS, BOOKS))
def test_what_is_taken_from_the_book_before_changes_nothing(files: tuple[Files, Files]) -> None:
    first, second = (outcome(partial(compile_snapshot, one)) for one in files)
    if isinstance(first, str) or isinstance(second, str):
        return
    before = book_of(first, version="1")
    assert contents_of(book_of(second, version="2", before=before)) == contents_of(
        book_of(second, version="2")
    )


HIGH = Criticality.DEGRADED
OURS = dumped(
    {"version": 1, "rules": [{"rule_id": "a", "resource_path": "/a", "limit": 5, "window": "1m"}]}
)
MESH = b"{domain: d, descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 3}}]}"


def test_what_is_tried_out_counts_after_what_is_enforced() -> None:
    rules = [
        {"rule_id": f"r{window}", "limit": 5, "window": window, "mode": mode}
        for window, mode in (("1s", "shadow"), ("1m", "enforce"), ("1h", "shadow"), ("1d", "off"))
    ]
    rules.append({**rules[1], "rule_id": "z", "window": "2m"})
    files = {"a.yaml": dumped({"version": 1, "rules": rules})}
    book = book_of(compile_snapshot(files), version="1")
    found = [rule.rule_id for rule in book.resources.find("/a", "", HIGH)]
    assert found == ["r1m", "z", "r1s", "r1h"]


def test_a_rule_has_the_defaults_of_its_own_file() -> None:
    def file(name: str, **defaults: object) -> bytes:
        rule = {"rule_id": name, "resource_path": f"/{name}", "limit": 10, "window": "1m"}
        return dumped({"version": 1, "defaults": defaults, "rules": [rule]})

    files = {"a.yaml": file("a", burst_capacity=2), "b.yaml": file("b", mode="shadow")}
    resources = book_of(compile_snapshot(files), version="1").resources
    (one,), (other,) = resources.find("/a", "", HIGH), resources.find("/b", "", HIGH)
    assert (one.kind.units, one.kind.shadow) == (20, False)
    assert (other.kind.units, other.kind.shadow) == (10, True)


def test_what_has_not_changed_is_not_read_again() -> None:
    first = compile_snapshot({"a.yaml": OURS, "m.yaml": MESH})
    second = compile_snapshot({"a.yaml": OURS.replace(b"/a", b"/b"), "m.yaml": MESH})
    before = book_of(first, version="1")
    after = book_of(second, version="2", before=before)
    assert after.mesh is before.mesh
    assert after.resources.priorities is before.resources.priorities
    (rule,), (other,) = before.resources.find("/a", "", HIGH), after.resources.find("/b", "", HIGH)
    assert other.kind is rule.kind
    envoy = compile_snapshot({"a.yaml": OURS, "m.yaml": MESH}, semantics=Semantics.ENVOY)
    assert book_of(envoy, version="3", before=before).mesh is not before.mesh


def changed(snapshot: RulesSnapshot, **fields_changed: object) -> RulesSnapshot:
    """A snapshot as a newer program could have made it."""
    names = ("semantics", "merge_domains", "files", "heads", "kinds", "uses", "forms", "pages")
    fields: dict[str, Any] = {name: getattr(snapshot, name) for name in names}
    fields["digests"] = snapshot.digests
    return RulesSnapshot(**{**fields, **fields_changed})


def test_what_is_not_understood_here_is_refused_with_the_remedy_to_upgrade() -> None:
    snapshot = compile_snapshot({"a.yaml": OURS, "m.yaml": MESH})
    (mark,) = snapshot.kinds
    newer = dumped({"version": 1, "defaults": {}, "rule": {"limit": 5, "window": "1m", "new": 1}})
    table = dumped({"version": 1, "tables": {}})
    for fields_changed in (
        {"kinds": {mark: newer}},
        {"heads": [table, snapshot.heads[1]]},
        {"heads": [snapshot.heads[0], b'{"domain":"d","new":1}']},
    ):
        with pytest.raises(DamagedSnapshot, match="upgrade this node"):
            book_of(changed(snapshot, **fields_changed), version="1")


def test_what_no_compiler_makes_is_damaged() -> None:
    snapshot = compile_snapshot({"a.yaml": OURS, "b.yaml": dumped({"version": 1, "callers": {}})})
    (mark,) = snapshot.kinds
    callers = b'{"callers":{},"version":1}'
    for fields_changed in (
        {"kinds": {mark: b"[]"}},
        {"kinds": {mark: b"{"}},
        {"kinds": {mark: b'{"rule":1}'}},
        {"heads": [callers, callers]},
        {"heads": [b"[]", callers]},
        {"heads": [b"\xff", callers]},
    ):
        with pytest.raises(DamagedSnapshot):
            book_of(changed(snapshot, **fields_changed), version="1")
