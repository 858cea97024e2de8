"""Assembly: the parts of a rulebook, made and joined, for a command or for a server."""

from __future__ import annotations

import os
from functools import partial
from typing import Final, final

from sluicegate.apps.rulebook.settings import PARTS, RulebookSettings
from sluicegate.contracts.event_log import EventLog
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.publishing.admin import RulebookAdmin
from sluicegate.rules.publishing.canary import CanarySettings
from sluicegate.rules.publishing.parts import Publishing, open_publishing
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.releases.signatures import Signer, Verifier
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.snapshot import compile_snapshot
from sluicegate.shadow.folder_judge import FolderJudge
from sluicegate.shadow.gate import JudgeSettings
from sluicegate.shadow.pair_run import Progress
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.event_logs import open_log

REFUSALS: Final = "audit"  # the folder of calls that were refused
_US: Final = 1_000_000


@final
class Assembly:
    """A rulebook that can be asked. `progress` is told how far a replay is.

    Only one that `serves` gives rollouts an end: a command could not renew them.
    """

    def __init__(
        self,
        settings: RulebookSettings,
        *,
        progress: Progress | None = None,
        serves: bool = False,
    ) -> None:
        self.settings = settings
        self.repository = Repository.open(settings.repository)
        self.blobs = open_blobs(settings.blobs)
        self._logs: list[EventLog] = []
        signer = Signer.read(settings.signing_key)
        trusted = [path for path in settings.trusted_keys if os.path.exists(path)]
        self.publishing: Publishing = open_publishing(
            self.repository,
            self.blobs,
            signer,
            verifier=Verifier.read(trusted) if trusted else None,
            events=self._log(settings.events) if settings.events else None,
            audit=self._log(f"files:{os.path.join(settings.folder, REFUSALS)}"),
            judge=FolderJudge(
                settings.capture, settings.capture_key, judge_settings(settings), progress=progress
            ),
            settings=_publishing_settings(settings, serves=serves),
            compiler=partial(
                compile_snapshot,
                semantics=Semantics(settings.semantics),
                merge_domains=settings.merge_domains,
            ),
        )

    @property
    def admin(self) -> RulebookAdmin:
        """Its operations."""
        return self.publishing.admin

    def close(self) -> None:
        """Give everything back."""
        self.publishing.close()
        for log in self._logs:
            log.close(_US)
        self.blobs.close()
        self.repository.close()

    def _log(self, url: str) -> EventLog:
        log = open_log(url)
        self._logs.append(log)
        return log


def judge_settings(settings: RulebookSettings) -> JudgeSettings:
    """How strict the gate is."""
    return JudgeSettings(
        refused_max=settings.critical_refused_max,
        samples_min=settings.critical_samples_min,
        mesh=MeshSettings(semantics=Semantics(settings.semantics)),
        merge_domains=settings.merge_domains,
    )


def _publishing_settings(settings: RulebookSettings, *, serves: bool) -> PublishingSettings:
    hold_us = round(settings.canary_hold_s * _US)
    return PublishingSettings(
        branch=f"refs/heads/{settings.branch}" if settings.branch else "",
        remote=settings.remote,
        own_approval=settings.own_approval,
        approvals_min=settings.approvals_min,
        look_us=round(settings.look_s * _US),
        rollout_valid_us=round(settings.rollout_valid_s * _US) if serves else 0,
        node_gone_us=round(settings.node_gone_s * _US),
        canary=CanarySettings(
            steps=settings.canary_steps,
            hold_us=hold_us,
            critical_min=settings.canary_samples_min,
            worse_max=round(settings.critical_refused_max * PARTS),
        ),
    )
