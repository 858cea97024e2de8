"""Pixel cost: dear formats cost more, and what is expected is of the same kind as what it was."""

from __future__ import annotations

import pytest

from sluicegate.policies.images.pixel_cost import expected_pixel_cost, pixel_cost


def test_pixels_are_counted_by_what_they_take() -> None:
    costs = [pixel_cost(1_000, 100, form) for form in ("jpeg", "png", "webp", "avif")]
    assert costs == [1_200, 2_000, 2_600, 8_000]
    assert pixel_cost(1_000, 100, "auto") == pixel_cost(1_000, 100, "webp")


@pytest.mark.parametrize(
    ("width", "height", "encoded"),
    [(100, 50, 5_000), (100, 0, 10_000), (0, 100, 10_000), (0, 0, 4_000)],
)
def test_what_is_not_said_of_a_result_is_expected(width: int, height: int, encoded: int) -> None:
    assert expected_pixel_cost(1_000, width, height, "jpeg") == pixel_cost(4_000, encoded, "jpeg")
