"""The promises once more, of the real rulebook: a git repository, a blob store, and its publisher.

It is asked in this process, and over HTTP. What it answers over HTTP is as the document says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.contracts.rule_admin import RuleAdmin
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.publishing.parts import Publishing, open_publishing
from sluicegate.rules.releases.signatures import Signer, new_key
from sluicegate.rules.remote.admin import RemoteRuleAdmin
from sluicegate.rules.repository.repository import Repository
from sluicegate.stores.blobs.files import FileBlobs
from sluicegate.stores.blobs.files_url import FileBlobSettings
from sluicegate.system import SystemClock
from tests.doors.http.rules.serving import RunningRulesDoor, rules_door_in_thread, token_of
from tests.rules.remote.admin_suite import FILE, RuleAdminSuite

OWNER = Identity("owner", EVERY_GRANT)


def text_of(limit: int) -> str:
    """A file with a rule of its own."""
    return (
        "version: 1\nrules:\n"
        f"  - rule_id: rule-{limit}\n    resource_path: /{limit}\n"
        f"    limit: {limit}\n    window_seconds: 60\n"
    )


class FolderRulebook:
    """A rulebook in a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        clock = SystemClock()
        files = {FILE: text_of(10).encode()}
        repository = Repository.create(folder / "rules.git", files=files, clock=clock)
        stack.callback(repository.close)
        new_key(folder / "keys")
        blobs = FileBlobs(FileBlobSettings(folder=str(folder / "blobs")))
        stack.callback(blobs.close)
        self.publishing: Publishing = open_publishing(
            repository, blobs, Signer.read(folder / "keys" / "signing.pem"), clock=clock
        )
        stack.callback(self.publishing.close)
        self.publishing.admin.begin(None, message="Begin", by=OWNER)
        self._clock = clock

    def admin(self, who: str) -> RuleAdmin:
        return self.publishing.admin

    def text(self, limit: int) -> str:
        return text_of(limit)

    def reports(self, node: str, version: int) -> None:
        now_us = self._clock.now_us()
        self.publishing.store.put_report(
            NodeReport(node, 1, version, 0, now_us, now_us, 1_000, "", {})
        )


class ServedRulebook(FolderRulebook):
    """The same behind a door."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        real: Any = self.publishing.admin
        self.door: RunningRulesDoor = stack.enter_context(rules_door_in_thread(admin=real))

    def admin(self, who: str) -> RuleAdmin:
        return RemoteRuleAdmin(f"http://{self.door.host}", token=token_of(who))


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where that can be had: a rulebook syncs each step, and that is tried elsewhere."""
    memory = "/dev/shm"
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


class TestFolderAdmin(RuleAdminSuite):
    @pytest.fixture
    def world(self, folder: Path) -> Iterator[FolderRulebook]:
        with ExitStack() as stack:
            yield FolderRulebook(folder, stack)


class TestServedAdmin(RuleAdminSuite):
    @pytest.fixture
    def world(self, folder: Path) -> Iterator[ServedRulebook]:
        with ExitStack() as stack:
            yield ServedRulebook(folder, stack)

    def test_what_it_answers_is_as_the_document_says(
        self, world: ServedRulebook, ask: Any, make_live: Any, propose: Any
    ) -> None:
        one, two = make_live(5), propose(6)["id"]
        world.reports("n-1", 1)
        rita: Any = world.admin("rita")

        def get(path: str) -> Any:
            return rita._request("GET", path, None, {}, 0.0)

        document = get("/openapi.json")
        for path, template in (
            ("", ""),
            (f"?at={two}", ""),
            (f"/files/{FILE}", "/files/{name}"),
            (f"/diff?from=1&to={one}", "/diff"),
            ("/proposals", "/proposals"),
            (f"/proposals/{one}", "/proposals/{id}"),
            (f"/proposals/{two}", "/proposals/{id}"),
            ("/versions", "/versions"),
            ("/status", "/status"),
            ("/wait?version=1&timeout_s=0", "/wait"),
            ("/audit", "/audit"),
        ):
            operation = document["paths"][f"/v1/rules{template}"]["get"]
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            whole = {**schema, "components": document["components"]}
            Draft202012Validator(whole).validate(get(path))
