"""Gives these tests a service on a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.service.door import Service


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service
