"""The engine fixtures, shared with `tests/engines`: one cluster of each kind a session."""

from __future__ import annotations

import pytest

FIXTURES = "tests.engines.fixtures"


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(FIXTURES):
        config.pluginmanager.import_plugin(FIXTURES)
