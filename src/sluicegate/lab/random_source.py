"""The random source of a run: a stream of draws of its own for each component.

The seed of a stream is derived from the seed of the run and the component's name. So a new
component, or one that draws more often than before, leaves the draws of all others as they were.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import final

from sluicegate.testing import SeededChance

SEED_BYTES = 8


def derive_seed(seed: int, name: str) -> int:
    """Derive the seed of the stream `name` in the run `seed`."""
    text = f"{seed}/{name}".encode()
    return int.from_bytes(blake2b(text, digest_size=SEED_BYTES).digest(), "big")


@final
class RandomSource:
    """All streams of one run."""

    __slots__ = ("_streams", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, SeededChance] = {}

    def of(self, name: str) -> SeededChance:
        """Return the stream of that name, the same one each time."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = SeededChance(derive_seed(self.seed, name))
        return stream
