from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.rules.resources import pages
from sluicegate.rules.resources.pages import (
    NO_PAGE,
    SAME_MARK_MAX,
    by_key,
    key_of,
    page_of,
    patch,
    record_of,
    records_of,
)

KIND = b"12345678"


def keys_of_one_page(count: int) -> list[bytes]:
    """Keys whose checksums lie in the first page."""
    keys: list[bytes] = []
    number = 0
    while len(keys) < count:
        key = b"/%d" % number
        if crc32(key) >> pages.CELL_BITS == 0:
            keys.append(key)
        number += 1
    return keys


KEYS = keys_of_one_page(24)
Groups = dict[bytes, list[bytes]]


def groups(names: st.SearchStrategy[list[str]]) -> st.SearchStrategy[Groups]:
    def made(ids_by_key: dict[bytes, list[str]]) -> Groups:
        return {
            key: [record_of(key, place % 5, KIND, name.encode()) for place, name in enumerate(ids)]
            for key, ids in ids_by_key.items()
        }

    return st.dictionaries(st.sampled_from(KEYS), names, max_size=len(KEYS)).map(made)


FULL = groups(st.lists(st.text("abc", min_size=1, max_size=40), min_size=1, max_size=3))
MAYBE = groups(st.lists(st.text("abc", min_size=1, max_size=40), max_size=3))


def page(page_groups: Groups) -> bytes:
    order = sorted(page_groups, key=lambda key: (crc32(key), key))
    return page_of([record for key in order for record in page_groups[key]])


@given(page_groups=FULL)
def test_a_page_holds_the_records_it_was_made_of(page_groups: Groups) -> None:
    assert by_key(page(page_groups)) == page_groups
    assert len(records_of(page(page_groups))) == sum(map(len, page_groups.values()))


@given(page_groups=FULL, changes=MAYBE)
def test_a_changed_page_is_the_page_that_would_have_been_made(
    page_groups: Groups, changes: Groups
) -> None:
    after, removed = patch(page(page_groups), changes)
    now = {key: records for key, records in {**page_groups, **changes}.items() if records}
    assert after == page(now)
    assert sorted(removed) == sorted(
        record for key in changes for record in page_groups.get(key, [])
    )


def test_a_page_without_records_is_no_page() -> None:
    key = KEYS[0]
    one = {key: [record_of(key, 4, KIND, b"a")]}
    assert patch(page(one), {key: []}) == (NO_PAGE, one[key])
    assert patch(NO_PAGE, one) == (page(one), [])
    two = {key: [record_of(key, 4, KIND, b"a"), record_of(key, 4, KIND, b"b")]}
    assert patch(page(two), {key: []}) == (NO_PAGE, two[key])


def test_too_many_rules_with_like_checksums_are_refused() -> None:
    records = [record_of(KEYS[0], 4, KIND, b"%d" % place) for place in range(SAME_MARK_MAX + 1)]
    assert len(records_of(page_of(records[:-1]))) == SAME_MARK_MAX
    with pytest.raises(ValueError, match="like checksums"):
        page_of(records)


def test_more_than_a_page_can_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not pages.__file__.endswith(".py"):
        pytest.skip("a compiled module keeps its bounds")
    monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 100)
    records = [record_of(KEYS[0], 4, KIND, b"%d" % place) for place in range(10)]
    with pytest.raises(ValueError, match="more than fit"):
        page_of(records)


def test_a_key_tells_the_path_from_the_kind_of_client() -> None:
    assert key_of("/a", "") != key_of("/a", "b") != key_of("/ab", "")
    assert key_of("/ä", "ö") == "/ä".encode() + b"\xfe" + "ö".encode()
