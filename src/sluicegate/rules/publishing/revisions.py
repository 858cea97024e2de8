"""Revisions: what people call a state of the rules, which commit that is, and what it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.rule_admin import ID_CHARS_MIN, LIVE_REVISION
from sluicegate.contracts.rulebook import APPROVED, OPEN, FileChange
from sluicegate.rules.publishing.differences import line_changes, rule_changes
from sluicegate.rules.publishing.ledger import LedgerState, RulebookLedger
from sluicegate.rules.publishing.records import Proposal
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.publishing.views import commit_view
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.snapshot import RulesSnapshot, compile_snapshot

_REMEDY = "give live, the number of a version, or the id of a commit or a proposal"
LISTS_MAX: Final = 16  # lists of files, which take a whole compilation to make
DIGEST_CHARS: Final = 12


# Files, and `before`: what of an earlier snapshot has not changed is shared with it.
Compile = Callable[..., RulesSnapshot]


@final
class RuleFiles:
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
        self._latest: tuple[str, RulesSnapshot] | None = None

    def files(self, commit: str) -> dict[str, bytes]:
        """The rules files, by their names from the top of the repository."""
        return self._repository.files(commit, folder=self._folder)

    def changes(self, before: str, after: str) -> list[FileChange]:
        """The files of the rules that differ between two commits."""
        folder = f"{self._folder}/" if self._folder else ""
        changes = self._repository.changes(before, after)
        return [one for one in changes if one.name.startswith(folder)]

    def compile(self, commit: str) -> RulesSnapshot:
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


class Revision(NamedTuple):
    """A commit, the version it has (0 for none), and how it was called."""

    commit: str
    version: int
    called: str


@final
class Revisions:
    """Finds revisions by their names, and reads them for people."""

    __slots__ = ("_ledger", "_lists", "_repository", "_rule_files")

    def __init__(
        self, repository: Repository, ledger: RulebookLedger, rule_files: RuleFiles
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._rule_files = rule_files
        self._lists: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def find(self, name: str) -> Revision:
        """The revision of this name; `BadValue` if there is none, or several."""
        state = self._ledger.state()
        if name == LIVE_REVISION:
            if state.live is None:
                raise Unavailable("the rulebook", "nothing is live yet; begin with a first version")
            return Revision(state.live.commit, state.live.number, "what is live")
        if name.isascii() and name.isdecimal() and int(name) in state.versions:
            number = int(name)
            return Revision(state.versions[number].commit, number, f"version {number}")
        if name.startswith("p"):
            return self._of_proposal(self.proposal(name), state)
        if len(name) < ID_CHARS_MIN:
            raise BadValue("revision", name, _REMEDY)
        commit = self._repository.find(name)
        return Revision(commit, _version_of(state, commit), f"commit {commit[:12]}")

    def proposal(self, name: str) -> Proposal:
        """The proposal whose id is this, or begins so; or that of a commit, by its id."""
        proposals = self._ledger.state().proposals
        exact = proposals.get(name)
        if exact is not None:
            return exact
        those = [it for it in proposals.values() if name and name in _prefixes(it, len(name))]
        if len(name) < ID_CHARS_MIN or len(those) != 1:
            remedy = "give more of it" if len(those) > 1 else "give an id as `proposals` lists them"
            raise BadValue("proposal", name, remedy)
        return those[0]

    def rules(self, at: str) -> dict[str, Any]:
        """The commit, its version, and its files."""
        revision = self.find(at)
        listed = self._lists.get(revision.commit)
        if listed is None:
            listed = self._lists[revision.commit] = self._list_files(revision.commit)
            while len(self._lists) > LISTS_MAX:
                self._lists.popitem(last=False)
        return {**self._head(revision), **listed}

    def file(self, name: str, at: str) -> dict[str, Any]:
        """One file."""
        revision = self.find(at)
        data = self._rule_files.files(revision.commit).get(name)
        if data is None:
            raise BadValue("name", name, f"give a file of {revision.called}, as `rules` lists them")
        return {
            **self._head(revision),
            "name": name,
            "digest": _digest(data),
            "text": data.decode("utf-8", "replace"),
        }

    def diff(self, before: str, after: str) -> dict[str, Any]:
        """What changes from one revision to the other."""
        old, new = self.find(before), self.find(after)
        changes = self._repository.changes(old.commit, new.commit)
        rules = rule_changes(changes)
        return {
            "before": self._head(old),
            "after": self._head(new),
            "files": [
                {
                    "name": one.name,
                    "change": "added"
                    if one.before is None
                    else "removed"
                    if one.after is None
                    else "changed",
                    "lines": line_changes(one),
                }
                for one in changes
            ],
            "rules": {
                "added": list(rules.added),
                "removed": list(rules.removed),
                "changed": list(rules.changed),
                "more": rules.more,
            },
        }

    # Inside.

    def _of_proposal(self, it: Proposal, state: LedgerState) -> Revision:
        called = f"proposal {it.id}"
        version = state.versions.get(it.version)
        if version is not None:
            return Revision(version.commit, version.number, called)
        if it.state in (OPEN, APPROVED) and state.live is not None:
            # What would be live: its own files lack what has gone live since.
            try:
                merged = self._repository.rebase(it.commit, state.live.commit)
            except (BadValue, Conflict):
                return Revision(it.commit, 0, called)
            return Revision(merged.id, 0, called)
        return Revision(it.commit, 0, called)

    def _head(self, revision: Revision) -> dict[str, Any]:
        view = commit_view(self._repository.info(revision.commit))
        return {**view, "version": revision.version or None}

    def _list_files(self, commit: str) -> dict[str, Any]:
        files = self._rule_files.files(commit)
        try:
            parsed = {one.name: one for one in self._rule_files.compile(commit).files}
            problem = ""
        except BadValue as error:
            parsed, problem = {}, str(error)
        return {
            "files": [
                {
                    "name": name,
                    "format": parsed[name].format if name in parsed else None,
                    "rules": parsed[name].rules if name in parsed else None,
                    "digest": _digest(data),
                }
                for name, data in files.items()
            ],
            "problem": problem,
        }


def _prefixes(it: Proposal, chars: int) -> tuple[str, str]:
    return it.id[:chars], it.commit[:chars]


def _version_of(state: LedgerState, commit: str) -> int:
    numbers = [one.number for one in state.versions.values() if one.commit == commit]
    return max(numbers, default=0)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:DIGEST_CHARS]
