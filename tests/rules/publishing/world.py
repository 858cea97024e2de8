"""A rulebook with all its real parts on a disk, hands for its clock, and a hand-made judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.contracts.event_log import Event
from sluicegate.contracts.rulebook import (
    RULES_CHANGED,
    Files,
    GateFinding,
    Judge,
    NodeReport,
    Rollout,
)
from sluicegate.rules.publishing.outbox import At, proceed
from sluicegate.rules.publishing.parts import Publishing, open_publishing
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.releases.signatures import Signer, new_key, open_rollout
from sluicegate.rules.repository.repository import Repository
from sluicegate.stores.blobs.files import FileBlobs
from sluicegate.stores.blobs.files_url import FileBlobSettings as BlobSettings
from sluicegate.stores.files.log import FileLog
from sluicegate.stores.files.settings import FileLogSettings as LogSettings
from sluicegate.testing import HandClock

READER = Identity("rita", [Grant.READ_RULES])
ANN = Identity("ann", [Grant.READ_RULES, Grant.PROPOSE])
BOB = Identity("bob", [Grant.READ_RULES, Grant.PROPOSE, Grant.APPROVE])
CAT = Identity("cat", EVERY_GRANT)
NOBODY = Identity("nobody", [])

LIVE_REF = "refs/sluicegate/live"
LEDGER_REF = "refs/sluicegate/ledger"
MAIN = "refs/heads/main"


def rules(**limits: int) -> str:
    """A file of rules, each with its limit a minute."""
    lines = ["version: 1", "rules:"]
    for name, limit in limits.items():
        lines += [
            f"  - rule_id: {name}",
            f"    resource_path: /{name}",
            f"    limit: {limit}",
            "    window_seconds: 60",
        ]
    return "\n".join(lines) + "\n"


FIRST = {"web.yaml": rules(login=10, search=100), "api.yaml": rules(orders=50)}


class HandJudge:
    """Finds what it was told to find, and remembers what it was asked."""

    def __init__(self, result: str = "passed", sentence: str = "nobody is newly refused") -> None:
        self.result = result
        self.sentence = sentence
        self.requests: list[tuple[Files, Files]] = []
        self.error: Exception | None = None

    def judge(self, current: Files, candidate: Files) -> GateFinding:
        self.requests.append((current, candidate))
        if self.error is not None:
            raise self.error
        return GateFinding(self.result, self.sentence, 0.9, {"newly_refused": 0})


class World:
    """A repository, a blob store, an event log and a publisher, in one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        judge: Judge | None = None,
        events: bool = True,
        settings: PublishingSettings | None = None,
        at: At = proceed,
        clock: HandClock | None = None,
    ) -> None:
        self.folder = folder
        self.clock = HandClock() if clock is None else clock
        self.settings = PublishingSettings() if settings is None else settings
        git = folder / "rules.git"
        fresh = not git.exists()
        if fresh:
            files = {name: text.encode() for name, text in FIRST.items()}
            self.repository = Repository.create(git, files=files, clock=self.clock)
            new_key(folder / "keys")
        else:
            self.repository = Repository.open(git, clock=self.clock)
        self.signer = Signer.read(folder / "keys" / "signing.pem")
        self.blobs = FileBlobs(BlobSettings(folder=str(folder / "blobs")))
        self.events = FileLog(LogSettings(folder=str(folder / "events"))) if events else None
        self.audit = FileLog(LogSettings(folder=str(folder / "audit"))) if events else None
        self.publishing: Publishing = open_publishing(
            self.repository,
            self.blobs,
            self.signer,
            events=self.events,
            audit=self.audit,
            judge=judge,
            settings=self.settings,
            clock=self.clock,
            at=at,
        )
        self.admin = self.publishing.admin
        self.ledger = self.publishing.ledger
        self.store = self.publishing.store
        self.look = self.publishing.upkeep.look

    # What tests say often.

    def begin(self) -> World:
        """With a first version."""
        self.admin.begin(None, message="the first rules", by=CAT)
        return self

    def propose(
        self, changes: Mapping[str, str | None], *, base: str = "live", by: Identity = ANN
    ) -> str:
        """The id of a new proposal. It is a second later."""
        self.clock.advance(s=1)
        answer = self.admin.propose(changes, base=base, message="other limits", confirm=True, by=by)
        return str(answer["id"])

    def approved(self, changes: Mapping[str, str | None], *, base: str = "live") -> str:
        """A new proposal that was approved."""
        id = self.propose(changes, base=base)  # noqa: A001 - it is what it is called
        self.admin.approve(id, override="a test", by=BOB)
        return id

    def live(self, changes: Mapping[str, str | None]) -> int:
        """Rules that went all the way; their version."""
        id = self.approved(changes)  # noqa: A001 - likewise
        return int(self.admin.publish(id, by=BOB)["version"])

    def state_of(self, id: str) -> str:  # noqa: A002 - likewise
        """What a proposal is."""
        return str(self.admin.proposal(id, by=READER)["state"])

    def rollout(self) -> Rollout:
        """What the fleet is told to run."""
        signed = self.store.rollout()
        assert signed is not None
        return signed.rollout

    def announced(self) -> list[Rollout]:
        """The rollout that were announced, in turn."""
        return [
            open_rollout(event.body, self.store.verifier).rollout
            for event in self.events_so_far()
            if event.kind == RULES_CHANGED
        ]

    def events_so_far(self) -> list[Event]:
        """All events so far."""
        assert self.events is not None
        reader = self.events.reader()
        try:
            return [*reader.read(10_000, 0)]
        finally:
            reader.close()

    def tip(self, ref: str) -> str:
        """Where a ref leads."""
        commit = self.repository.tip(ref)
        assert commit is not None
        return commit

    def files(self, ref: str = LIVE_REF) -> dict[str, str]:
        """The files there."""
        return {name: data.decode() for name, data in self.repository.files(self.tip(ref)).items()}

    def report(
        self,
        node: str = "n1",
        *,
        version: int = 1,
        canary: int = 0,
        counts: Mapping[str, tuple[int, int]] | None = None,
        failure: str = "",
        since_us: int | None = None,
    ) -> None:
        """What a node says of itself, now."""
        now_us = self.clock.now_us()
        report_counts: dict[str, Any] = {} if counts is None else dict(counts)
        self.store.put_report(
            NodeReport(
                node=node,
                rollout=self.rollout().number,
                version=version,
                canary=canary,
                at_us=now_us,
                since_us=now_us if since_us is None else since_us,
                took_us=1_000,
                failure=failure,
                counts=report_counts,
            )
        )

    def sentences(self) -> list[str]:
        """The audit, newest first."""
        return [str(one["sentence"]) for one in self.admin.audit(by=READER)]

    def close(self) -> None:
        """Give back what is held."""
        self.publishing.close()
        for log in (self.events, self.audit):
            if log is not None:
                log.close()
        self.blobs.close()
        self.repository.close()


Make = Callable[..., World]
