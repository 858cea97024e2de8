from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from functools import partial

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.rules.resources.packed import Forms
from sluicegate.rules.resources.pages import page_of, records_of
from sluicegate.rules.snapshot import codec as packing
from sluicegate.rules.snapshot.codec import WORD, pack, unpack
from sluicegate.rules.snapshot.digests import page_digests
from sluicegate.rules.snapshot.sections import (
    FORM_VERSION,
    DamagedSnapshot,
    SnapshotSection,
    frame,
    read_frame,
)
from sluicegate.rules.snapshot.snapshot import RulesSnapshot, compile_snapshot
from tests.rules.snapshot.stories import BOOKS, Files, dumped, outcome

MESH = b"{domain: d, descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 3}}]}"


def small(count: int = 6) -> RulesSnapshot:
    rules = [
        {
            "rule_id": f"rule-{place}",
            "resource_path": f"/a/{place}" + ("/*" if place % 3 == 1 else ""),
            "limit": 1 + place % 4,
            "window": "1m",
            **({"client_type": "TV"} if place % 2 else {}),
            **({"mode": "off"} if place % 5 == 4 else {}),
        }
        for place in range(count)
    ]
    return compile_snapshot({"a.yaml": dumped({"version": 1, "rules": rules}), "m.yaml": MESH})


SMALL = small()
PACKED = pack(SMALL)


@settings(max_examples=25)
@given(files=BOOKS)
def test_what_is_unpacked_is_what_was_packed(files: Files) -> None:
    snapshot = outcome(partial(compile_snapshot, files))
    if isinstance(snapshot, str):
        return
    after = unpack(pack(snapshot))
    assert vars(after) == vars(snapshot)
    assert pack(after) == pack(snapshot)


def test_blocks_are_pages_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = small(200)
    whole = pack(snapshot)
    monkeypatch.setattr(packing, "BLOCK_ROWS", 16)
    blocks = pack(snapshot)
    assert len(blocks) > len(whole)
    assert unpack(blocks).pages == unpack(whole).pages == snapshot.pages


def refused_or_same(data: bytes) -> None:
    try:
        after = unpack(data)
    except DamagedSnapshot:
        return
    assert after.content == SMALL.content
    assert after.pages == SMALL.pages


def test_whatever_is_changed_on_the_way_is_found() -> None:
    draws = random.Random(1)
    for at in range(len(PACKED)):
        changed = bytearray(PACKED)
        changed[at] ^= 1 << draws.randrange(8)
        refused_or_same(bytes(changed))


def test_what_is_cut_off_or_longer_is_damaged() -> None:
    for length in range(len(PACKED)):
        with pytest.raises(DamagedSnapshot):
            unpack(PACKED[:length])
    for more in (PACKED + b"\0", PACKED * 2):
        with pytest.raises(DamagedSnapshot):
            unpack(more)


@given(data=st.binary(max_size=200), headed=st.booleans())
def test_noise_is_damaged(data: bytes, headed: bool) -> None:
    with pytest.raises(DamagedSnapshot):
        unpack(WORD + struct.pack("<H", FORM_VERSION) + data if headed else data)


# The parts, taken apart and put together otherwise.


def sections(data: bytes = PACKED) -> list[SnapshotSection]:
    parts = read_frame(WORD, data, packing._SECTIONS)
    return [SnapshotSection(part.name, part.open()) for part in parts]


def with_part(name: str, data: bytes) -> bytes:
    return frame(
        WORD,
        [SnapshotSection(one.name, data if one.name == name else one.data) for one in sections()],
    )


def test_parts_that_do_not_fit_together_are_damaged() -> None:
    assert frame(WORD, sections()) == PACKED
    outline = next(one.data for one in sections() if one.name == "outline")
    assert unpack(with_part("outline", outline)).content == SMALL.content
    for name, data in (
        ("content", bytes(32)),
        ("content", b""),
        ("outline", b""),
        ("outline", b"[]"),
        ("outline", outline.replace(b'"a.yaml"', b'"b.yaml"')),
        ("outline", b"[" * 100_000),
        ("outline", outline.replace(b"sluicegate", b"sideways")),
        ("outline", outline.replace(b'"native"', b"5")),
        ("outline", outline.replace(b'"forms":[', b'"forms":[[1,2,3,4],')),
        ("outline", outline.replace(b'"forms":[', b'"forms":[[99,"/",3,4],')),
        ("heads", b"{}"),
        ("heads", next(one.data for one in sections() if one.name == "heads") + b" "),
        ("heads", b""),
        ("kinds", b""),
        ("kinds", b"{}\n{}"),
        ("keys", b""),
        ("keys", b"/a"),
        ("keys", b"/a\xff"),
        ("ids", b"\xff" * 7),
        ("ids", b""),
        ("prios", b"\x05" * 6),
        ("prios", b"\x04" * 7),
        ("kindnos", b"\xff" * 24),
        ("kindnos", b"\x00" * 23),
    ):
        with pytest.raises(DamagedSnapshot):
            unpack(with_part(name, data))


def test_parts_in_another_order_or_too_few_are_damaged() -> None:
    whole = sections()
    for some in (
        whole[1:],
        whole[:-1],
        whole[::-1],
        [],
        whole[:4],
        whole + whole[4:],
        whole[:5] * 2,
    ):
        with pytest.raises(DamagedSnapshot):
            unpack(frame(WORD, some))


def test_an_unknown_part_is_passed_over_unless_it_is_needed() -> None:
    more = frame(WORD, [*sections(), SnapshotSection("advice", b"new", needed=False)])
    assert unpack(more).content == SMALL.content
    with pytest.raises(DamagedSnapshot, match="'tables' that this program does not know; upgrade"):
        unpack(frame(WORD, [*sections(), SnapshotSection("tables", b"new")]))


def test_a_newer_form_is_refused_with_the_remedy_to_upgrade() -> None:
    newer = PACKED[:8] + struct.pack("<H", FORM_VERSION + 1) + PACKED[10:]
    with pytest.raises(DamagedSnapshot, match=r"form 2.*upgrade this node"):
        unpack(newer)
    with pytest.raises(DamagedSnapshot, match="something else"):
        unpack(b"sgdelta\0" + PACKED[8:])


def test_no_more_is_unpacked_than_is_allowed() -> None:
    total = sum(len(one.data) for one in sections())
    assert unpack(PACKED, bytes_max=total).content == SMALL.content
    with pytest.raises(DamagedSnapshot, match="bytes_max"):
        unpack(PACKED, bytes_max=total - 1)


def bomb(size: int, data: bytes) -> bytes:
    """A frame with one part, which says of itself what it likes."""
    head = struct.pack("<8sHI", WORD, FORM_VERSION, 1)
    return head + struct.pack("<8sBQQ", b"content", 1, len(data), size) + data


def test_a_part_that_lies_about_its_size_is_damaged() -> None:
    zeros = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(4 << 20))
    for size in (0, 32, 1 << 62):
        for data in (zeros, streamed, b"", zeros[:-3], zeros + b"\0"):
            with pytest.raises(DamagedSnapshot):
                unpack(bomb(size, data))


def test_damage_says_what_to_do() -> None:
    error = DamagedSnapshot("it is cut off")
    assert str(error) == "the snapshot cannot be used: it is cut off; fetch it again"
    assert error.__reduce__() == (DamagedSnapshot, ("it is cut off", "fetch it again"))


def test_what_no_compiler_makes_is_damaged_whatever_its_digest_says() -> None:
    names = ("semantics", "merge_domains", "files", "heads", "kinds", "uses")
    fields = {name: getattr(SMALL, name) for name in names}

    def of(pages: Sequence[bytes], forms: Forms) -> RulesSnapshot:
        return RulesSnapshot(**fields, pages=pages, forms=forms, digests=page_digests(pages))

    assert unpack(pack(of(SMALL.pages, SMALL.forms))).content == SMALL.content
    with pytest.raises(DamagedSnapshot):
        unpack(pack(of(SMALL.pages, {**SMALL.forms, (99, "/"): (1, 0)})))
    pages = list(SMALL.pages)
    place = next(place for place, page in enumerate(pages) if page)
    (record, *others) = records_of(pages[place])
    pages[place] = page_of([record[:2] + b"\x07" + record[3:], *others])
    with pytest.raises(DamagedSnapshot):
        unpack(pack(of(pages, SMALL.forms)))
