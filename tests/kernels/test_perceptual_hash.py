from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.perceptual_hash import (
    COLUMNS,
    DISTANCE_MAX,
    ROWS,
    bands_near,
    bands_of,
    difference_hash,
    hash_distance,
)

hashes = st.integers(0, (1 << 64) - 1)
distances = st.integers(0, DISTANCE_MAX)
flipped = st.sets(st.integers(0, 63), max_size=DISTANCE_MAX + 2)


def slow_distance(one: int, other: int) -> int:
    return f"{one ^ other:b}".count("1")


def flip(hash_: int, bits: set[int]) -> int:
    for bit in bits:
        hash_ ^= 1 << bit
    return hash_


@given(hashes, st.lists(flipped, max_size=12), distances)
def test_what_is_within_the_distance_is_at_a_place_that_is_looked_at(
    hash_: int, near: list[set[int]], distance: int
) -> None:
    places = set(bands_near(hash_, distance))
    for other in (flip(hash_, bits) for bits in near):
        if slow_distance(other, hash_) <= distance:
            assert places & set(bands_of(other))


@pytest.mark.parametrize("distance", range(DISTANCE_MAX + 1))
def test_no_way_of_spreading_the_bits_over_the_bands_hides_a_hash(distance: int) -> None:
    places = set(bands_near(0, distance))
    spreads = {
        (a, b, c, distance - a - b - c)
        for a in range(distance + 1)
        for b in range(distance + 1 - a)
        for c in range(distance + 1 - a - b)
    }
    for spread in spreads:
        hash_ = sum((1 << count) - 1 << 16 * band for band, count in enumerate(spread))
        assert places & set(bands_of(hash_)), spread


@pytest.mark.parametrize(("distance", "count"), [(0, 1), (3, 4), (4, 20), (7, 68), (8, 188)])
def test_a_look_up_takes_no_more_places_than_are_said(distance: int, count: int) -> None:
    places = bands_near(12_345, distance)
    assert len(places) == len(set(places)) == count


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


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="9 x 8 pixels, not 64"):
        difference_hash([0] * 64)
    with pytest.raises(ValueError, match="distance"):
        bands_near(0, DISTANCE_MAX + 1)
