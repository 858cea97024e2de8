"""Gives these tests a rulebook of their own, and a real Redis shared with all other folders."""

from __future__ import annotations

import pytest

from tests.apps.rulebook.stories import book

__all__ = ["book"]
FIXTURES = "tests.engines.fixtures"


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(FIXTURES):
        config.pluginmanager.import_plugin(FIXTURES)
