from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.contracts.engine import Engine
from sluicegate.stores.open_engine import open_engine
from sluicegate.testing.engines import DurableEngineSuite, EngineSuite


class TestMemory(EngineSuite):
    def open_engine(self) -> Engine:
        return open_engine("memory:")


class InAFolder(DurableEngineSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path


class TestLmdb(InAFolder):
    def open_engine(self) -> Engine:
        # So small a map grows in many stories.
        return open_engine(f"lmdb:{self.folder}/kv?map_bytes=1048576")


class TestFaulty(InAFolder):
    def open_engine(self) -> Engine:
        return open_engine(f"faulty+lmdb:{self.folder}/kv?shards=4&map_bytes=1048576")


class TestFaultyAtWork(EngineSuite):
    def open_engine(self) -> Engine:
        return open_engine("faulty+memory:?slots=64&work_ms=0.01&shards=4&slots_by=shard")


class TestRocksdb(InAFolder):
    def open_engine(self) -> Engine:
        return open_engine(f"rocksdb:{self.folder}/kv")
