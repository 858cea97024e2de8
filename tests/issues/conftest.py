"""Gives these tests the engine fixtures, and threads that are switched as often as can be."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

FIXTURES = "tests.engines.fixtures"
SWITCH_S = 1e-5  # CPython's own is 5 ms, at which most races stay hidden


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(FIXTURES):
        config.pluginmanager.import_plugin(FIXTURES)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads are switched every 10 us."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
