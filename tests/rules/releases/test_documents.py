from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import BlobPart, Canary, NodeReport, Release, Rollout
from sluicegate.rules.releases.documents import (
    DELTAS_MAX,
    FAILURE_CHARS_MAX,
    PINS_MAX,
    check_node,
    read_release,
    read_report,
    read_rollout,
    release_bytes,
    report_bytes,
    rollout_bytes,
)
from sluicegate.rules.releases.json_fields import INT_MAX

whole = st.integers(0, INT_MAX)
counted = st.integers(1, INT_MAX)
digests = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")
parts = st.builds(BlobPart, digests, counted)
nodes = st.from_regex(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]{0,30}", fullmatch=True)
texts = st.text(max_size=40).filter(lambda text: text.isprintable())
releases = st.builds(
    Release,
    version=counted,
    commit=st.integers(0, 2**160 - 1).map(lambda number: f"{number:040x}"),
    content=digests,
    snapshot=parts,
    bytes_unpacked=whole,
    rules=whole,
    made_us=whole,
    deltas=st.dictionaries(digests, parts, max_size=4),
)
canaries = st.builds(
    Canary, counted, st.sampled_from(["callers", "nodes"]), st.integers(0, 10_000), texts
)
rollout = st.builds(
    Rollout,
    number=counted,
    live=counted,
    canary=st.none() | canaries,
    pins=st.dictionaries(nodes, counted, max_size=4),
    back=st.booleans(),
    reason=texts,
    at_us=whole,
    expires_us=whole,
)
reports = st.builds(
    NodeReport,
    node=nodes,
    rollout=whole,
    version=whole,
    canary=whole,
    at_us=whole,
    since_us=whole,
    took_us=whole,
    failure=texts,
    counts=st.dictionaries(texts, st.lists(whole, max_size=3), max_size=4),
)

RELEASE = Release(3, "ab" * 20, "1" * 64, BlobPart("2" * 64, 10), 20, 30, 40, {})
ROLLOUT = Rollout(3, 2, Canary(3, "callers", 100, "s"), {"a": 1}, False, "why", 5)
REPORT = NodeReport("a", 1, 2, 3, 4, 5, 6, "", {"2/CRITICAL": [1, 2]})


@given(releases)
def test_an_edition_comes_back_as_it_was(release: Release) -> None:
    assert read_release(release_bytes(release)) == release


@given(rollout)
def test_orders_come_back_as_they_were(given_orders: Rollout) -> None:
    assert read_rollout(rollout_bytes(given_orders)) == given_orders


@given(reports)
def test_a_report_comes_back_as_it_was(report: NodeReport) -> None:
    assert read_report(report_bytes(report)) == report


def test_the_same_document_is_always_the_same_bytes() -> None:
    # What a publisher signs again after a crash is what it signed before.
    one = RELEASE._replace(
        deltas={"a" * 64: BlobPart("3" * 64, 1), "b" * 64: BlobPart("4" * 64, 1)}
    )
    other = one._replace(deltas=dict(reversed([*one.deltas.items()])))
    assert release_bytes(one) == release_bytes(other)


KINDS: list[tuple[bytes, Callable[[bytes], Any]]] = [
    (release_bytes(RELEASE), read_release),
    (rollout_bytes(ROLLOUT), read_rollout),
    (report_bytes(REPORT), read_report),
]


@pytest.mark.parametrize(("data", "read"), KINDS)
def test_what_a_newer_program_adds_is_ignored_and_a_newer_format_is_refused(
    data: bytes, read: Callable[[bytes], object]
) -> None:
    fields = json.loads(data)
    for value in fields.values():
        if isinstance(value, dict) and "by" in value:
            value["invented_later"] = {"a": [1.5, None]}
    later = json.dumps({**fields, "invented_later": [1]}).encode()
    assert read(later) == read(data)
    with pytest.raises(BadValue, match=r"format: 2.*upgrade"):
        read(json.dumps({**fields, "format": 2}).encode())
    for wrong in (0, "1", True, None, 1.0):
        with pytest.raises(BadValue, match="format"):
            read(json.dumps({**fields, "format": wrong}).encode())


@pytest.mark.parametrize(("data", "read"), KINDS)
def test_every_field_is_needed_and_named_if_it_is_wrong(
    data: bytes, read: Callable[[bytes], object]
) -> None:
    fields = json.loads(data)
    for name in fields:
        wrongs: list[Any] = [[[]], -1, 1.5, {"a": "b"}, "\x00" * 5_000]
        for wrong in wrongs:
            with pytest.raises(BadValue, match=name):
                read(json.dumps({**fields, name: wrong}).encode())
        if name != "canary":
            without = {key: value for key, value in fields.items() if key != name}
            with pytest.raises(BadValue, match=name):
                read(json.dumps(without).encode())


@pytest.mark.parametrize(("data", "read"), KINDS)
def test_half_a_document_is_none(data: bytes, read: Callable[[bytes], object]) -> None:
    for length in range(len(data)):
        with pytest.raises(BadValue, match="send JSON"):
            read(data[:length])
    with pytest.raises(BadValue, match="send an object"):
        read(b"[]")
    with pytest.raises(BadValue, match="name it once"):
        read(data.replace(b'"format":1', b'"format":1,"format":1'))
    with pytest.raises(BadValue, match="a number that JSON has"):
        read(data.replace(b'"format":1', b'"format":NaN'))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"version": 0}, "edition.version"),
        ({"version": INT_MAX + 1}, "edition.version"),
        ({"commit": "AB" * 20}, "edition.commit"),
        ({"commit": "ab" * 19}, "edition.commit"),
        ({"content": "1" * 63}, "edition.content"),
        ({"snapshot": BlobPart("x" * 64, 1)}, "edition.snapshot.digest"),
        ({"snapshot": BlobPart("1" * 64, 0)}, "edition.snapshot.bytes"),
        ({"deltas": {"x": BlobPart("1" * 64, 1)}}, "edition.deltas"),
        ({"deltas": {"1" * 64: BlobPart("../../etc", 1)}}, "digest"),
        ({"rules": -1}, "edition.rules"),
    ],
)
def test_an_edition_that_cannot_be_is_not_written(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue, match=field):
        release_bytes(RELEASE._replace(**changed))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"number": 0}, "orders.number"),
        ({"live": 0}, "orders.live"),
        ({"pins": {"../a": 1}}, "orders.pins"),
        ({"pins": {".a": 1}}, "orders.pins"),
        ({"pins": {"a": 0}}, "orders.pins.a"),
        ({"back": 1}, "orders.back"),
        ({"reason": "x" * 4_001}, "orders.reason"),
        ({"canary": Canary(1, "planets", 1, "")}, "orders.canary.by.*upgrade"),
        ({"canary": Canary(1, "nodes", 10_001, "")}, "orders.canary.share"),
        ({"canary": Canary(0, "nodes", 1, "")}, "orders.canary.version"),
        ({"canary": Canary(1, "nodes", 1, "x" * 65)}, "orders.canary.salt"),
    ],
)
def test_orders_that_cannot_be_are_not_written(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue, match=field):
        rollout_bytes(ROLLOUT._replace(**changed))


def test_there_is_a_bound_to_everything_that_repeats() -> None:
    part = BlobPart("1" * 64, 1)
    deltas = {f"{number:064x}": part for number in range(DELTAS_MAX + 1)}
    with pytest.raises(BadValue, match=f"at most {DELTAS_MAX}"):
        release_bytes(RELEASE._replace(deltas=deltas))
    release_bytes(RELEASE._replace(deltas=dict([*deltas.items()][1:])))
    pins = {f"n{number}": 1 for number in range(PINS_MAX + 1)}
    with pytest.raises(BadValue, match="at most"):
        rollout_bytes(ROLLOUT._replace(pins=pins))
    with pytest.raises(BadValue, match="at most"):
        report_bytes(REPORT._replace(counts={str(number): [] for number in range(1_001)}))
    with pytest.raises(BadValue, match="counts"):
        report_bytes(REPORT._replace(counts={"a": [1] * 65}))
    with pytest.raises(BadValue, match="counts"):
        report_bytes(REPORT._replace(counts={"a": [-1]}))


def test_a_long_trouble_is_cut_and_not_refused() -> None:
    report = read_report(report_bytes(REPORT._replace(failure="x" * 5_000)))
    assert report.failure == "x" * FAILURE_CHARS_MAX


def test_a_node_has_a_name_that_can_stand_in_a_path() -> None:
    assert check_node("limiter-7.eu_west=1") == "limiter-7.eu_west=1"
    for wrong in ("", ".", "..", "a/b", "a b", "ü", "x" * 129, "a\n"):
        with pytest.raises(BadValue, match="node"):
            check_node(wrong)
