"""Contents: the rules files of a commit, and what they compile to.

A repository may hold other things beside its rules; then they are in a folder of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.snapshot import Snapshot, compile_snapshot

# Files, and `before`: what of an earlier snapshot has not changed is shared with it.
Compile = Callable[..., Snapshot]


@final
class Contents:
    """Reads and compiles. `compiler` is told of the service's own settings by whoever gives it.

    The latest snapshot is kept: what is checked, approved and published is compiled once.
    """

    __slots__ = ("_compiler", "_folder", "_latest", "_repository")

    def __init__(
        self,
        repository: Repository,
        *,
        settings: PublishingSettings,
        compiler: Compile = compile_snapshot,
    ) -> None:
        self._repository = repository
        self._folder = settings.folder
        self._compiler = compiler
        self._latest: tuple[str, Snapshot] | None = None

    def files(self, commit: str) -> dict[str, bytes]:
        """The rules files, by their names from the top of the repository."""
        return self._repository.files(commit, folder=self._folder)

    def compiled(self, commit: str) -> Snapshot:
        """What they say; `BadRules` tells all that is wrong with them."""
        latest = self._latest
        if latest is not None and latest[0] == commit:
            return latest[1]
        before = None if latest is None else latest[1]
        snapshot = self._compiler(self.files(commit), before=before)
        self._latest = (commit, snapshot)
        return snapshot

    def check_name(self, name: str) -> None:
        """`BadValue` for a file that is not among the rules."""
        if self._folder and not name.startswith(f"{self._folder}/"):
            raise BadValue("changes", name, f"rules are in the folder {self._folder}")
