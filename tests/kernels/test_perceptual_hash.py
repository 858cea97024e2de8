from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.perceptual_hash import (
    COLUMNS,
    DISTANCE_MAX,
    ROWS,
    HashIndex,
    NearHash,
    difference_hash,
    hash_distance,
)

hashes = st.integers(0, (1 << 64) - 1)
distances = st.integers(0, DISTANCE_MAX)
flipped = st.sets(st.integers(0, 63), max_size=DISTANCE_MAX + 2)


def slow_distance(one: int, other: int) -> int:
    return f"{one ^ other:b}".count("1")


def slow_find(there: set[int], hash_: int, distance: int) -> list[NearHash]:
    """The oracle: compare with all."""
    near = [NearHash(slow_distance(one, hash_), one) for one in there]
    return sorted(one for one in near if one.distance <= distance)


def flip(hash_: int, bits: set[int]) -> int:
    for bit in bits:
        hash_ ^= 1 << bit
    return hash_


@given(hashes, st.lists(flipped, max_size=12), st.lists(hashes, max_size=4), distances)
def test_it_finds_what_comparing_with_all_finds(
    hash_: int, near: list[set[int]], far: list[int], distance: int
) -> None:
    there = {flip(hash_, bits) for bits in near} | set(far)
    index = HashIndex()
    for one in there:
        assert index.add(one)
    assert index.find(hash_, distance) == slow_find(there, hash_, distance)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 15)), max_size=40), distances)
def test_what_is_removed_is_not_found_again(steps: list[tuple[bool, int]], distance: int) -> None:
    index, there = HashIndex(), set()
    for adds, number in steps:
        hash_ = number * 0x0101_0101_0101_0101
        if adds:
            index.add(hash_)
            there.add(hash_)
        else:
            index.remove(hash_)
            there.discard(hash_)
    assert len(index) == len(there)
    assert index.find(0, distance) == slow_find(there, 0, distance)
    assert all(number in index for number in there)


@pytest.mark.parametrize("distance", range(DISTANCE_MAX + 1))
def test_no_way_of_spreading_the_bits_over_the_bands_hides_a_hash(distance: int) -> None:
    index = HashIndex()
    spreads = {
        (a, b, c, distance - a - b - c)
        for a in range(distance + 1)
        for b in range(distance + 1 - a)
        for c in range(distance + 1 - a - b)
    }
    for spread in spreads:
        index.add(sum((1 << count) - 1 << 16 * band for band, count in enumerate(spread)))
    assert len(index.find(0, distance)) == len(index) == len(spreads)


def test_each_bit_says_whether_it_grows_brighter_to_the_right() -> None:
    brighter = [column for _ in range(ROWS) for column in range(COLUMNS)]
    assert difference_hash(brighter) == (1 << 64) - 1
    assert difference_hash([COLUMNS - one for one in brighter]) == 0
    assert difference_hash([7] * COLUMNS * ROWS) == 0
    assert difference_hash([0, 1, *[9] * 70]) == 0b11 << 62


@given(st.lists(st.integers(0, 200), min_size=72, max_size=72), st.integers(0, 55))
def test_a_brighter_picture_has_the_same_hash(pixels: list[int], more: int) -> None:
    assert difference_hash([one + more for one in pixels]) == difference_hash(pixels)


@given(hashes, hashes)
def test_the_distance_is_the_number_of_bits_that_differ(one: int, other: int) -> None:
    assert hash_distance(one, other) == slow_distance(one, other)


def test_a_full_index_takes_no_more_and_keeps_what_it_has() -> None:
    index = HashIndex(hashes_max=2)
    assert [index.add(one) for one in (1, 2, 3, 2)] == [True, True, False, True]
    index.remove(1)
    assert index.add(3)
    assert 1 not in index


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="9 x 8 pixels, not 64"):
        difference_hash([0] * 64)
    with pytest.raises(ValueError, match="hashes_max"):
        HashIndex(hashes_max=0)
    with pytest.raises(ValueError, match="distance"):
        HashIndex().find(0, DISTANCE_MAX + 1)
    with pytest.raises(ValueError, match="hash"):
        HashIndex().add(1 << 64)
