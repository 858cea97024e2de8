"""Which drills are played: all, or for SLUICEGATE_DRILLS=half every other one, by turns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HALF = "SLUICEGATE_DRILLS"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave every other one to a run whose SLUICEGATE_PROVE_SEED is odd, if this one is even."""
    if os.environ.get(HALF) != "half":
        return
    drills = [item for item in items if item.path.parent == Path(__file__).parent]
    drills = [item for item in drills if item.get_closest_marker("alone")]
    turn = int(os.environ.get("SLUICEGATE_PROVE_SEED", "0")) % 2
    left_out = {item.nodeid for item in drills[1 - turn :: 2]}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]
