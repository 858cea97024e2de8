"""Folder judge: tries each change of rules on whatever a folder of captures holds by then."""

from __future__ import annotations

import os
from threading import Lock
from typing import Final, final

from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.rulebook import Files, GateFinding
from sluicegate.rules.problems import BadRules
from sluicegate.shadow.capture.key import CaptureKey, read_key
from sluicegate.shadow.capture.reader import CaptureRead, read_capture
from sluicegate.shadow.gate import JudgeSettings, ShadowJudge, verdict_not_judged
from sluicegate.shadow.literals import describe_untried, vocabulary_of
from sluicegate.shadow.pair_run import Progress

QUERIES_MAX: Final = 500_000  # different ones, of which each takes about a kilobyte


@final
class FolderJudge:
    """A `contracts.rulebook.Judge`; one judgement at a time, for each takes memory.

    Without the key, a redacted capture cannot be read.

    `read` is what was read last, for whoever wants to know how much of it there was.
    """

    def __init__(
        self,
        folder: str,
        key_file: str,
        settings: JudgeSettings,
        *,
        progress: Progress | None = None,
    ) -> None:
        self._folder = folder
        self._key_file = key_file
        self._settings = settings
        self._progress = progress
        self._lock = Lock()
        self.read: CaptureRead | None = None

    def judge(self, current: Files, candidate: Files) -> GateFinding:
        """Try the candidate beside what is live now."""
        try:
            if not os.path.isdir(self._folder) or not os.listdir(self._folder):
                return verdict_not_judged(f"Nothing has been captured in {self._folder} yet.")
            with self._lock:
                return self._judge(current, candidate)
        except BadRules as error:
            return verdict_not_judged(f"The rules cannot be read: {error}")
        except (SluicegateError, OSError) as error:
            return verdict_not_judged(f"The capture cannot be read: {error}")

    def _judge(self, current: Files, candidate: Files) -> GateFinding:
        read = self.read = self._read_capture(current, candidate)
        doubts = describe_untried(
            current,
            candidate,
            read.traffic,
            read.unmatched_globs,
            semantics=self._settings.mesh.semantics,
        )
        judge = ShadowJudge(
            lambda: read.traffic,
            self._settings,
            notes=_notes(read),
            doubts=doubts,
            progress=self._progress,
        )
        return judge.judge(current, candidate)

    def _read_capture(self, current: Files, candidate: Files) -> CaptureRead:
        key, settings = self._key(), self._settings
        vocabulary = vocabulary_of(
            (current, candidate), key, semantics=settings.mesh.semantics, names=settings.pinned
        )
        return read_capture(self._folder, key=key, vocabulary=vocabulary, queries_max=QUERIES_MAX)

    def _key(self) -> CaptureKey | None:
        return read_key(self._key_file) if os.path.exists(self._key_file) else None


def _notes(read: CaptureRead) -> list[str]:
    """What a reader of the report must know of the capture."""
    notes = [f"Damaged: {sentence}." for sentence in read.damage]
    if read.withheld:
        notes.append(f"{read.withheld:,} requests, or parts of them, were withheld as secret.")
    notes += [
        f"{glob!r} of {where} cannot match what was redacted; rules by it are not tried."
        for where, glob in read.unmatched_globs
    ]
    return notes
