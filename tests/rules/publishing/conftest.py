"""A maker of worlds, which are closed when the test ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.rules.publishing.world import Make, World


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one: what is tried here is no power cut, and syncs wait."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[World] = []

    def one(folder: Path = tmp_path, **settings: Any) -> World:
        made.append(World(folder, **settings))
        return made[-1]

    yield one
    for world in made:
        world.close()


@pytest.fixture
def world(make: Make) -> World:
    """Version 1 is live, and there is no gate."""
    return make().begin()
