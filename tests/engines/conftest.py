"""Gives this folder's tests the engine fixtures; a folder elsewhere does it by the same lines.

Nothing else may live here: the fixtures are a plugin, `fixtures.py`, so that all folders that load
it share one cluster of each kind.
"""

from __future__ import annotations

import pytest

FIXTURES = "tests.engines.fixtures"


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(FIXTURES):
        config.pluginmanager.import_plugin(FIXTURES)
