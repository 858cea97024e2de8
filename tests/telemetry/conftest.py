"""Threads that take turns in haste, and the engine fixtures: real servers, shared with all."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

FIXTURES = "tests.engines.fixtures"


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(FIXTURES):
        config.pluginmanager.import_plugin(FIXTURES)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns so often that whatever can be lost between two of them is."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)
