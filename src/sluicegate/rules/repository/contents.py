"""Contents: the files of commits, bounded, and what one commit changes of another.

Rules must not go missing without a word, so what is called like a file of rules and cannot be read
as one is an error, and nothing is followed out of the repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final, final

from dulwich.objects import Commit as GitCommit

from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.rulebook import FileChange
from sluicegate.rules.repository.commits import bad_name, check_name
from sluicegate.rules.repository.objects import Objects
from sluicegate.rules.repository.settings import RepositorySettings
from sluicegate.rules.repository.trees import TreeEntry, Trees

_SUBMODULE: Final = 0o160000
_SHOWN_MAX: Final = 10


@final
class CommitContents:
    """What commits hold."""

    __slots__ = ("_objects", "_settings", "_trees")

    def __init__(self, objects: Objects, trees: Trees, settings: RepositorySettings) -> None:
        self._objects = objects
        self._trees = trees
        self._settings = settings

    def files(self, commit: GitCommit, folder: str, suffixes: tuple[str, ...]) -> dict[str, bytes]:
        """The files with one of these endings, by name."""
        read = self._reader()
        contents: dict[str, bytes] = {}
        for raw, entry in self._trees.files(_tree(commit), self._folder(folder)):
            if entry.mode == _SUBMODULE or not _ends(raw, suffixes):
                continue
            name = self._name(raw)
            if not entry.is_file:
                raise BadValue(name, "a link", "keep the file itself here; links are not followed")
            if len(contents) >= self._settings.files_max:
                bound = self._settings.files_max
                raise BadValue("repository.files", f"more than {bound}", "raise files_max")
            contents[name] = read(name, entry)
        return contents

    def skipped(self, commit: GitCommit, folder: str) -> dict[str, str]:
        """What is passed over, and why."""
        return {
            _shown(raw): "it is another repository, mounted here (a submodule)"
            for raw, entry in self._trees.files(_tree(commit), self._folder(folder))
            if entry.mode == _SUBMODULE
        }

    def changes(
        self, before: GitCommit | None, after: GitCommit, folder: str, suffixes: tuple[str, ...]
    ) -> list[FileChange]:
        """The files that differ, with what they hold."""
        read = self._reader()
        changes: list[FileChange] = []
        old = None if before is None else _tree(before)
        for raw, was, now in self._trees.differences(old, _tree(after), self._folder(folder)):
            sides = [None if one is None or one.mode == _SUBMODULE else one for one in (was, now)]
            if not _ends(raw, suffixes) or sides == [None, None]:
                continue
            if len(changes) >= self._settings.files_max:
                bound = self._settings.files_max
                raise BadValue("repository.files", f"more than {bound}", "raise files_max")
            name = _shown(raw)
            changes.append(
                FileChange(name, *(None if one is None else read(name, one) for one in sides))
            )
        return changes

    def modes(self, base: GitCommit | None, names: Iterable[str]) -> Mapping[str, int]:
        """How the files of these names are kept now, where there are such."""
        if base is None:
            return {}
        raw_names = {name.encode(): name for name in names}
        modes = {}
        for raw, name in raw_names.items():
            entry = self._trees.entry(_tree(base), raw)
            if entry is not None and entry.is_file:
                modes[name] = entry.mode
        return modes

    def changes_to_carry(
        self, base: GitCommit, source: GitCommit, target: GitCommit
    ) -> dict[str, TreeEntry | None]:
        """What has to be changed in theirs so that it has our changes too."""
        their_changes = {
            raw: now for raw, _, now in self._trees.differences(_tree(base), _tree(target))
        }
        carried: dict[str, TreeEntry | None] = {}
        clashes = []
        for raw, _, now in self._trees.differences(_tree(base), _tree(source)):
            if raw not in their_changes:
                carried[self._name(raw)] = now
            elif their_changes[raw] != now:
                clashes.append(_shown(raw))
        if clashes:
            names = ", ".join(clashes[:_SHOWN_MAX])
            more = len(clashes) - _SHOWN_MAX
            raise Conflict(
                f"{names} and {more} more" if more > 0 else names,
                f"it was changed in {_short(source)} and in {_short(target)} since {_short(base)}",
            )
        return carried

    def added(self, to: str, present: Set[str | None]) -> list[str]:
        """The objects that loose commits bring, from one back to those that are known."""
        ids: list[str] = []
        seen, todo = set(present), [to]
        while todo:
            at = todo.pop()
            if at in seen or not self._objects.is_loose(at):
                continue
            seen.add(at)
            commit = self._objects.commit(at)
            parents = [str(parent, "ascii") for parent in commit.parents]
            before = None
            if parents and parents[0] in self._objects:
                before = _tree(self._objects.commit(parents[0]))
            ids += [at, *self._trees.added(before, _tree(commit))]
            todo += [parent for parent in parents if parent in self._objects]
        return ids

    def _reader(self) -> Callable[[str, TreeEntry], bytes]:
        bytes_left = self._settings.bytes_max

        def read(name: str, entry: TreeEntry) -> bytes:
            nonlocal bytes_left
            content = self._objects.blob(entry.id)
            if len(content) > self._settings.file_bytes_max:
                bound = self._settings.file_bytes_max
                raise BadValue(name, len(content), f"use at most {bound} bytes a file")
            bytes_left -= len(content)
            if bytes_left < 0:
                bound = self._settings.bytes_max
                raise BadValue("repository.bytes", f"more than {bound}", "raise bytes_max")
            return content

        return read

    def _name(self, raw: bytes) -> str:
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise BadValue("file", _shown(raw), "give it a name in UTF-8") from None
        return check_name(name, self._settings)

    def _folder(self, folder: str) -> bytes:
        name = folder.strip("/")
        remedy = bad_name(name, self._settings) if name else ""
        if remedy:
            raise BadValue("folder", folder, remedy)
        return name.encode()


def _tree(commit: GitCommit) -> str:
    return str(commit.tree, "ascii")


def _short(commit: GitCommit) -> str:
    return str(commit.id[:12], "ascii")


def _ends(raw: bytes, suffixes: tuple[str, ...]) -> bool:
    return not suffixes or raw.lower().endswith(tuple(suffix.encode() for suffix in suffixes))


def _shown(raw: bytes) -> str:
    text = raw.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
