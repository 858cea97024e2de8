"""Gives these tests the engine fixtures: real servers, shared with all other folders."""

from __future__ import annotations

import pytest

FIXTURES = "tests.engines.fixtures"


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(FIXTURES):
        config.pluginmanager.import_plugin(FIXTURES)
