from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.rules.repository.repository import Repository
from tests.rules.repository.stories import AT_US

FILES = {"README.md": b"Ours\n", "a.yaml": b"a: 1\n", "web/b.yaml": b"b: 1\n"}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.create(tmp_path / "rules.git", files=FILES, at_us=AT_US)
