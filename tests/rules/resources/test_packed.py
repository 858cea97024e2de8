from __future__ import annotations

import random
from itertools import product
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.kernels.path_index import plain_path, plain_pattern
from sluicegate.rules.resources.packed import SLOTS_MAX, PackedIndex, form_of
from sluicegate.rules.resources.pages import (
    CELL_BITS,
    PAGES,
    flag_of,
    key_of,
    off_key,
    page_of,
    record_of,
)
from sluicegate.rules.resources.paths import ResourceIndex
from sluicegate.rules.resources.rule import ANY_PRIORITY, LimitKind, Per, ResourceRule


def kind(seconds: int, *, shadow: bool = False) -> LimitKind:
    limit = Limit(1, period_us=seconds * 1_000_000, algorithm=Algorithm.FIXED_WINDOW)
    return LimitKind(f"~{seconds}", limit, Per.USER, shadow=shadow)


# Two marks share their first bytes, so they are told apart by all of them.
KINDS = {
    b"\x00\x01-first": kind(1),
    b"\x00\x01-other": kind(2),
    b"\x01\x00-third": kind(3),
    b"\x02\x00-trial": kind(4, shadow=True),
}
MARKS = {id(kind): mark for mark, kind in KINDS.items()}


def packed(rules: list[ResourceRule], off: tuple[str, ...] = ()) -> PackedIndex:
    """An index of these, which are in the order in which they count."""
    rows: list[list[tuple[int, bytes, int, bytes]]] = [[] for _ in range(PAGES)]
    forms: dict[tuple[int, str], tuple[int, int]] = {}
    for place, rule in enumerate(rules):
        key = key_of(rule.path, rule.client_type)
        flags = rule.priority | flag_of(rule.path)
        record = record_of(key, flags, MARKS[id(rule.kind)], rule.rule_id.encode())
        order = (rule.priority << 1 | rule.kind.shadow) << 32 | place
        rows[crc32(key) >> CELL_BITS].append((crc32(key), key, order, record))
        family, shape, typed = form_of(key)
        plain_count, typed_count = forms.get((family, shape), (0, 0))
        forms[family, shape] = (plain_count + (not typed), typed_count + typed)
    for name in off:
        key = off_key(b"/a", name)
        rows[crc32(key) >> CELL_BITS].append(
            (crc32(key), key, 0, record_of(key, 4, b"unknown!", name.encode()))
        )
    pages = [page_of([row[3] for row in sorted(page)]) for page in rows]
    return PackedIndex(pages, forms, KINDS, len(rules) + len(off))


def plain(rules: list[ResourceRule]) -> ResourceIndex:
    index = ResourceIndex()
    for rule in rules:
        index.add(rule)
    return index


def ids_and_kinds(rules: tuple[ResourceRule, ...]) -> list[tuple[object, ...]]:
    return [
        (rule.rule_id, rule.kind.shared_id, rule.path, rule.client_type, rule.priority)
        for rule in rules
    ]


SEGMENTS = ("a", "b", "ä", "{x}")
PATTERNS = [
    "",
    *{
        "/" + "/".join(parts) + end
        for depth in range(4)
        for parts in product(SEGMENTS, repeat=depth)
        for end in ("", "/*")
    },
]
PATHS = [
    "/" + "/".join(parts)
    for depth in range(4)
    for parts in product(("a", "b", "ä", "{}", "*", "\ud800"), repeat=depth)
]
CLIENTS = ("", "TV", "ö")
RULES = st.lists(
    st.tuples(
        st.sampled_from(PATTERNS),
        st.sampled_from(CLIENTS),
        st.sampled_from([0, 1, 3, ANY_PRIORITY]),
        st.sampled_from(list(KINDS.values())),
    ),
    max_size=24,
    unique_by=lambda row: (
        plain_pattern(row[0]) if row[0] else "",
        *row[1:3],
        row[3].shared_id,
    ),
)


@given(rows=RULES, seed=st.integers(0, 1 << 32))
def test_it_finds_what_the_index_of_rules_finds(
    rows: list[tuple[str, str, int, LimitKind]], seed: int
) -> None:
    draws = random.Random(seed)
    rules = [
        ResourceRule(f"r{place}", kind, plain_pattern(path) if path else "", client, priority)
        for place, (path, client, priority, kind) in enumerate(rows)
    ]
    ours, theirs = packed(rules), plain(rules)
    for path in draws.sample(PATHS, 20):
        plain_text = plain_path(path)
        for client, priority in product((*CLIENTS, "PHONE", "\ud800"), (0, 1, 2)):
            expected = ids_and_kinds(theirs.find(plain_text, client, priority))
            assert ids_and_kinds(ours.find(plain_text, client, priority)) == expected, (
                path,
                client,
                priority,
            )


def test_what_is_asked_is_never_taken_for_a_pattern() -> None:
    rules = [
        ResourceRule(path, kind(1), path, "", ANY_PRIORITY)
        for path in ("/a/{}/c", "/{}/b/c", "/f/*", "/f/{}")
    ]
    for rule in rules:
        MARKS[id(rule.kind)] = b"\x00\x01-first"
    index = packed(rules)
    for path, expected in (
        ("/a/{}/c", "/a/{}/c"),
        ("/{}/b/c", "/{}/b/c"),
        ("/{}/{}/c", None),
        ("/f/*", "/f/{}"),
        ("/f", "/f/*"),
        ("/f/*/x", "/f/*"),
        ("/{}", None),
    ):
        found = [rule.rule_id for rule in index.find(path, "", 1)]
        assert found == ([expected] if expected else []), path


def test_a_path_is_not_found_by_its_beginning() -> None:
    page = crc32(b"/a") >> CELL_BITS
    longer = next(
        path
        for path in (f"/a/{number}" for number in range(1_000_000))
        if crc32(path.encode()) >> CELL_BITS == page
    )
    index = packed([ResourceRule("longer", KINDS[b"\x01\x00-third"], longer, "", ANY_PRIORITY)])
    assert index.find(longer, "", 1)
    assert not index.find("/a", "", 1)


def test_a_rule_is_found_by_its_name_unless_it_is_off() -> None:
    rules = [
        ResourceRule("one", KINDS[b"\x00\x01-first"], "/a/{}", "TV", 2),
        ResourceRule("none", KINDS[b"\x00\x01-other"], "/b/*", "", ANY_PRIORITY),
        ResourceRule("three", KINDS[b"\x01\x00-third"], "", "", 0),
    ]
    index = packed(rules, off=("gone",))
    assert len(index) == 4
    for rule in rules:
        found = index.rule(rule.rule_id)
        assert found is not None
        assert ids_and_kinds((found,)) == ids_and_kinds((rule,))
    for name in ("gone", "ne", "", "two", "\ud800"):
        assert index.rule(name) is None, name


@pytest.mark.parametrize("many", [1, 300, 9_000])
def test_however_many_kinds_there_are_each_rule_has_its_own(many: int) -> None:
    assert many * 8 < SLOTS_MAX or many == 9_000
    kinds = {b"%08d" % place: kind(place + 1) for place in range(many)}
    rows: list[list[bytes]] = [[] for _ in range(PAGES)]
    for mark in list(kinds)[:: 1 + many // 50]:
        key = b"/" + mark
        rows[crc32(key) >> CELL_BITS].append(record_of(key, 4, mark, mark))
    pages = [page_of(sorted(page, key=lambda one: crc32(one[11:20]))) for page in rows]
    families = {form_of(b"/%08d" % place)[:2]: (1, 0) for place in range(many)}
    index = PackedIndex(pages, families, kinds, many)
    for mark in list(kinds)[:: 1 + many // 50]:
        (found,) = index.find("/" + mark.decode(), "", 1)
        assert found.kind is kinds[mark]
