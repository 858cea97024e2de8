"""Showing: the rules of a revision, a file of it, and what changes between two of them."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.publishing.contents import Contents
from sluicegate.rules.publishing.differences import line_changes, rule_changes
from sluicegate.rules.publishing.revisions import Revision, Revisions
from sluicegate.rules.publishing.views import commit_view
from sluicegate.rules.repository.repository import Repository

KEPT_MAX: Final = 16  # lists of files, which take a whole compilation to make
DIGEST_CHARS: Final = 12


@final
class Showing:
    """Reads revisions for people."""

    __slots__ = ("_contents", "_kept", "_repository", "_revisions")

    def __init__(self, repository: Repository, contents: Contents, revisions: Revisions) -> None:
        self._repository = repository
        self._contents = contents
        self._revisions = revisions
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def rules(self, at: str) -> dict[str, Any]:
        """The commit, its version, and its files."""
        revision = self._revisions.find(at)
        listed = self._kept.get(revision.commit)
        if listed is None:
            listed = self._kept[revision.commit] = self._listed(revision.commit)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return {**self._head(revision), **listed}

    def file(self, name: str, at: str) -> dict[str, Any]:
        """One file."""
        revision = self._revisions.find(at)
        data = self._contents.files(revision.commit).get(name)
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
        old, new = self._revisions.find(before), self._revisions.find(after)
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

    def _head(self, revision: Revision) -> dict[str, Any]:
        view = commit_view(self._repository.info(revision.commit))
        return {**view, "version": revision.version or None}

    def _listed(self, commit: str) -> dict[str, Any]:
        files = self._contents.files(commit)
        try:
            known = {one.name: one for one in self._contents.compiled(commit).files}
            problem = ""
        except BadValue as error:
            known, problem = {}, str(error)
        return {
            "files": [
                {
                    "name": name,
                    "format": known[name].format if name in known else None,
                    "rules": known[name].rules if name in known else None,
                    "digest": _digest(data),
                }
                for name, data in files.items()
            ],
            "problem": problem,
        }


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:DIGEST_CHARS]
