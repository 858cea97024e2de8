from __future__ import annotations

import asyncio

from tests.stores.images.malformed import damaged, endure, good_images


def test_no_damaged_image_ends_otherwise_than_as_a_picture_or_a_failure() -> None:
    ends = asyncio.run(endure(range(400)))
    assert sum(ends.values()) - ends["replaced"] == 400
    # The damage is of both kinds, or this proves nothing.
    assert ends["made"] > 20
    assert ends["corrupt"] > 100
    assert not [end for end in ends if end.startswith("died")]


def test_the_damage_is_that_of_its_seed() -> None:
    good = good_images()
    assert damaged(7, good) == damaged(7, good) != damaged(8, good)
