"""Malformed images: 100,000 good ones with damage, through real workers.

None crashes the service or takes a worker over its bounds, and a worker that dies of one costs that
one alone. A seed is a thousand images.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.prove.seeds import seeds
from tests.stores.images.malformed import endure

IMAGES = 1_000


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(100, 2))
def test_a_thousand_damaged_images_end_as_pictures_or_failures(seed: int) -> None:
    ends = asyncio.run(endure(range(seed * IMAGES, (seed + 1) * IMAGES)))
    assert sum(ends.values()) - ends["replaced"] == IMAGES
    assert ends["made"] > 0
    assert ends["corrupt"] > 0
