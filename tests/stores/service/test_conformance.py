"""The service store is put through the suite that users are given, on a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluicegate.contracts.store import Store
from sluicegate.stores.service.store import ServiceStore
from sluicegate.testing import SeededChance
from sluicegate.testing.stores import SharedStoreSuite
from tests.stores.service.door import Service


class TestService(SharedStoreSuite):
    service: Service

    @pytest.fixture(autouse=True)
    def place(self) -> Iterator[None]:
        with Service() as self.service:
            yield

    def open_store(self) -> Store:
        return ServiceStore(self.service.url, SeededChance(1))
