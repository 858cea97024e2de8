"""The same promises, of an admin in this process and of one that is asked over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluicegate.contracts.rule_admin import RuleAdmin
from sluicegate.rules.remote.admin import RemoteRuleAdmin
from tests.doors.http.rules.memory_admin import MemoryRuleAdmin, no_gate
from tests.doors.http.rules.serving import (
    RunningRulesDoor,
    rules_door_in_thread,
    rules_of,
    token_of,
)
from tests.rules.remote.admin_suite import RuleAdminSuite


class Near:
    """The admin itself."""

    def __init__(self) -> None:
        self.memory = MemoryRuleAdmin(no_gate)

    def admin(self, who: str) -> RuleAdmin:
        return self.memory

    def text(self, limit: int) -> str:
        return rules_of(limit)

    def reports(self, node: str, version: int) -> None:
        self.memory.reports(node, version)


class Far:
    """The admin behind a door; each of the people has a token."""

    def __init__(self, door: RunningRulesDoor) -> None:
        self.door = door

    def admin(self, who: str) -> RuleAdmin:
        return RemoteRuleAdmin(f"http://{self.door.host}", token=token_of(who))

    def text(self, limit: int) -> str:
        return rules_of(limit)

    def reports(self, node: str, version: int) -> None:
        self.door.admin.reports(node, version)


class TestNear(RuleAdminSuite):
    @pytest.fixture
    def world(self) -> Near:
        return Near()


class TestFar(RuleAdminSuite):
    @pytest.fixture
    def world(self) -> Iterator[Far]:
        with rules_door_in_thread() as here:
            yield Far(here)
