"""What all tests share: how Hypothesis runs, and where files go. Fixtures live with their tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

import tests.engines.child  # noqa: F401 - services that tests start stop without a wait
from tests.prove.seeds import is_drawn

# Much of what is tested waits for a disk to say that all is there. In memory it says so at once;
# the order of the calls, which is what the tests are about, is the same.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"

# A busy machine is no fault of the code, so no deadline. What the examples of one run miss the next
# run's may find; HYPOTHESIS_PROFILE=thorough looks longer.
settings.register_profile("default", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# What a script starts in the background has Ctrl-C ignored, and so would have what the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary folders in memory if there is enough of it and nobody says otherwise."""
    if TEMPORARY in os.environ or config.option.basetemp:
        return
    with suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN and os.access(MEMORY, os.W_OK):
            os.environ[TEMPORARY] = str(MEMORY)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect proofs next to their features that are not drawn in this run."""
    proofs = config.rootpath / "tests" / "prove"
    left_out = [
        item
        for item in items
        if item.get_closest_marker("prove")
        and proofs not in item.path.parents
        and not is_drawn(item.nodeid)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    """Spare every later garbage collection the tests themselves: 600,000 objects, 0.4 s of CPU."""
    gc.collect()
    gc.freeze()
