from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.image_fit import ImageFit, cut_offset, fit_image

sides = st.integers(1, 60)
boxes = st.integers(0, 60)
ways = st.sampled_from(["cover", "contain", "fill", "inside"])


def rounded(side: Fraction) -> int:
    return max(1, int(side + Fraction(1, 2)))


def slow_fit(own: tuple[int, int], box: tuple[int, int], fit: str, enlarge: bool) -> ImageFit:
    """The oracle: a scale for each axis, as an exact fraction, and the definitions in words."""
    scales = [Fraction(want, side) for want, side in zip(box, own, strict=True) if want]
    if not scales:
        return ImageFit(*own, *own)
    if fit == "fill":
        by_axis = [Fraction(want or side, side) for want, side in zip(box, own, strict=True)]
    else:
        one = max(scales) if fit == "cover" and len(scales) == 2 else min(scales)
        by_axis = [one, one]
    if not enlarge:
        by_axis = [min(scale, Fraction(1)) for scale in by_axis]
    width, height = (rounded(side * scale) for side, scale in zip(own, by_axis, strict=True))
    if len(scales) == 2 and fit == "contain":
        return ImageFit(width, height, *box)
    if len(scales) == 2 and fit == "cover":
        return ImageFit(width, height, min(width, box[0]), min(height, box[1]))
    return ImageFit(width, height, width, height)


@given(sides, sides, boxes, boxes, ways, st.booleans())
def test_the_sizes_are_those_of_exact_fractions(
    own_w: int, own_h: int, width: int, height: int, fit: str, enlarge: bool
) -> None:
    found = fit_image(own_w, own_h, width, height, fit, enlarge)
    assert found == slow_fit((own_w, own_h), (width, height), fit, enlarge)


@given(sides, sides, sides, sides, ways, st.booleans())
def test_nothing_is_larger_than_its_box_or_without_a_pixel(
    own_w: int, own_h: int, width: int, height: int, fit: str, enlarge: bool
) -> None:
    found = fit_image(own_w, own_h, width, height, fit, enlarge)
    assert 1 <= found.width <= width
    assert 1 <= found.height <= height
    assert min(found.scaled_width, found.scaled_height) >= 1
    if not enlarge:
        assert found.scaled_width <= own_w
        assert found.scaled_height <= own_h


@pytest.mark.parametrize(
    ("fit", "enlarge", "found"),
    [
        ("cover", True, ImageFit(600, 400, 400, 400)),
        ("contain", True, ImageFit(400, 267, 400, 400)),
        ("fill", True, ImageFit(400, 400, 400, 400)),
        ("inside", True, ImageFit(400, 267, 400, 267)),
        ("cover", False, ImageFit(300, 200, 300, 200)),
        ("contain", False, ImageFit(300, 200, 400, 400)),
        ("fill", False, ImageFit(300, 200, 300, 200)),
        ("inside", False, ImageFit(300, 200, 300, 200)),
    ],
)
def test_a_small_picture_grows_only_where_it_may(fit: str, enlarge: bool, found: ImageFit) -> None:
    assert fit_image(300, 200, 400, 400, fit, enlarge) == found


def test_an_open_side_follows_the_other() -> None:
    assert fit_image(300, 200, 150, 0, "cover", True) == ImageFit(150, 100, 150, 100)
    assert fit_image(300, 200, 0, 100, "contain", True) == ImageFit(150, 100, 150, 100)
    assert fit_image(300, 200, 150, 0, "fill", True) == ImageFit(150, 200, 150, 200)


@given(sides, sides, st.integers(0, 1_000))
def test_a_cut_stays_in_the_picture_and_has_its_point_in_the_middle(
    scaled: int, less: int, permille: int
) -> None:
    kept = min(scaled, less)
    start = cut_offset(scaled, kept, permille)
    wished = rounded(Fraction(scaled * permille, 1_000)) if scaled * permille >= 500 else 0
    best = min(range(scaled - kept + 1), key=lambda at: abs(at + kept // 2 - wished))
    assert start == best


def test_the_middle_and_the_corners_are_where_one_expects_them() -> None:
    assert cut_offset(600, 400, 500) == 100
    assert cut_offset(600, 400, 0) == 0
    assert cut_offset(600, 400, 1_000) == 200
