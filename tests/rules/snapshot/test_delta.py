from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.rules.snapshot.codec import pack, unpack
from sluicegate.rules.snapshot.delta import WORD, apply_delta, make_delta
from sluicegate.rules.snapshot.sections import DamagedSnapshot, SnapshotSection, frame, read_frame
from sluicegate.rules.snapshot.snapshot import RulesSnapshot, compile_snapshot
from tests.rules.snapshot.stories import BOOKS, Files, dumped, outcome

PART_NAMES = ("contents", "outline", "heads", "head", "kinds", "changed")


@settings(max_examples=40)
@given(files=st.tuples(BOOKS, BOOKS, BOOKS))
def test_deltas_lead_where_the_files_lead(files: tuple[Files, Files, Files]) -> None:
    """However many versions were between, the snapshot is the one that would have been made."""
    snapshots = [outcome(partial(compile_snapshot, one)) for one in files]
    readable = [one for one in snapshots if not isinstance(one, str)]
    now = readable[0] if readable else None
    for after in readable[1:]:
        assert now is not None
        now = apply_delta(now, make_delta(now, after))
        assert vars(now) == vars(after)
        assert pack(now) == pack(after)


def rules(**fields_by_name: Mapping[str, object]) -> Files:
    rule_list = [
        {"rule_id": name, "limit": 5, "window": "1m", **fields}
        for name, fields in fields_by_name.items()
    ]
    head = "callers" * 500  # a name that fills the head
    return {
        "a.yaml": dumped({"version": 1, "rules": rule_list}),
        "c.yaml": dumped({"version": 1, "callers": {"pins": [head[:250], "ann"]}}),
    }


MANY: dict[str, dict[str, object]] = {
    f"r{place}": {"resource_path": f"/a/{place}"} for place in range(300)
}
BEFORE = compile_snapshot(rules(**MANY))
FEW = {name: MANY[name] for name in list(MANY)[3:]} | {
    "r7": {"resource_path": "/a/7", "limit": 6},
    "new": {},
}
AFTER = compile_snapshot(rules(**FEW))
DELTA = make_delta(BEFORE, AFTER)


def test_what_has_not_changed_is_shared() -> None:
    after = apply_delta(BEFORE, DELTA)
    assert after.content == AFTER.content
    same = [mine is theirs for mine, theirs in zip(after.pages, BEFORE.pages, strict=True)]
    assert same.count(False) <= 7
    assert after.heads[1] is BEFORE.heads[1]
    assert len(DELTA) < len(pack(AFTER)) / 3


def test_nothing_changed_is_a_delta_too() -> None:
    assert apply_delta(BEFORE, make_delta(BEFORE, BEFORE)).content == BEFORE.content


def test_a_small_change_of_a_large_head_is_a_small_delta() -> None:
    draws = random.Random(2)
    pins = [f"{draws.getrandbits(128):x}" for _ in range(2_000)]

    def of(pins: list[str]) -> RulesSnapshot:
        return compile_snapshot({"a.yaml": dumped({"version": 1, "callers": {"pins": pins}})})

    before, after = of(pins), of([*pins[:1_000], "ann", *pins[1_000:]])
    delta = make_delta(before, after)
    assert len(delta) < 1_000 < len(pack(after)) / 20
    assert apply_delta(before, delta).heads == after.heads


def test_it_is_for_one_snapshot_only() -> None:
    for other in (AFTER, compile_snapshot(rules())):
        with pytest.raises(DamagedSnapshot, match="for other rules than these; fetch the whole"):
            apply_delta(other, DELTA)
    again = unpack(pack(BEFORE))
    assert apply_delta(again, DELTA).content == AFTER.content


def refused_or_same(data: bytes) -> None:
    try:
        after = apply_delta(BEFORE, data)
    except DamagedSnapshot:
        return
    assert after.content == AFTER.content
    assert after.pages == AFTER.pages


def test_whatever_is_changed_on_the_way_is_found() -> None:
    draws = random.Random(1)
    for at in range(len(DELTA)):
        changed = bytearray(DELTA)
        changed[at] ^= 1 << draws.randrange(8)
        refused_or_same(bytes(changed))


def test_what_is_cut_off_is_damaged() -> None:
    for length in range(len(DELTA)):
        with pytest.raises(DamagedSnapshot):
            apply_delta(BEFORE, DELTA[:length])


def with_part(name: str, data: bytes) -> bytes:
    parts = read_frame(WORD, DELTA, PART_NAMES)
    like = {"outline": BEFORE.outline()}
    return frame(
        WORD,
        [
            SnapshotSection(
                part.name,
                data if part.name == name else part.open(like.get(part.name, b"")),
                like=like.get(part.name, b""),
            )
            for part in parts
        ],
    )


def test_parts_that_do_not_fit_together_are_damaged() -> None:
    assert with_part("none", b"") == DELTA
    key, kind = b"/a/1", next(iter(BEFORE.kinds))
    group = (4).to_bytes(2, "little") + b"\1\0" + key
    record = b"\4" + kind + b"\2" + b"r1"
    for name, data in (
        ("contents", b""),
        ("contents", bytes.fromhex(BEFORE.content) + bytes(32)),
        ("outline", b"{}"),
        ("heads", b"[]"),
        ("heads", b"[0,9]"),
        ("heads", b"[-1,0]"),
        ("heads", b"{}"),
        ("kinds", b"{}"),
        ("changed", b""),
        ("changed", group),
        ("changed", group + b"\x0f" + record[1:]),
        ("changed", group + b"\4" + bytes(8) + record[9:]),
        ("changed", group + record[:-1] + b"\xff"),
        ("changed", group + record[:-1] + b"\x80"),
        ("changed", group + record[:-1]),
        ("changed", group + record + b"\0"),
        ("changed", group[:4] + b"/\xff/1" + record),
    ):
        with pytest.raises(DamagedSnapshot):
            apply_delta(BEFORE, with_part(name, data))


def test_no_more_is_unpacked_than_is_allowed() -> None:
    with pytest.raises(DamagedSnapshot, match="bytes_max"):
        apply_delta(BEFORE, DELTA, bytes_max=100)


def test_a_delta_is_no_snapshot_and_a_snapshot_no_delta() -> None:
    with pytest.raises(DamagedSnapshot, match="something else"):
        apply_delta(BEFORE, pack(BEFORE))
    with pytest.raises(DamagedSnapshot, match="something else"):
        unpack(DELTA)
