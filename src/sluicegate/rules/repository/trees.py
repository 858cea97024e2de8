"""Trees: folders of a commit as files by name, what differs between two, and a tree with changes.

What stands here is plain: names to entries. An `Entry` knows the id of a file's content, so two
trees are compared without reading a file, and folders that are alike are not even opened.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Final, NamedTuple, final

from dulwich.objects import ObjectID, ShaFile, Tree

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.repository.objects import Objects
from sluicegate.rules.repository.settings import RepositorySettings

FILE_MODE: Final = 0o100644
FOLDER_MODE: Final = 0o040000
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class TreeEntry(NamedTuple):
    """A file in a tree: how it is kept, and the id of its content."""

    mode: int
    id: str

    @property
    def is_file(self) -> bool:
        """Whether it holds what it says: no link, and no other repository."""
        return stat.S_ISREG(self.mode)


class _Unchanged:
    """What stands for a file that no change names."""


_UNCHANGED: Final = _Unchanged()


class _Node:
    """What becomes of a name: of the file itself, and of what is below if it is a folder."""

    __slots__ = ("below", "change")

    def __init__(self) -> None:
        self.change: TreeEntry | _Unchanged | None = _UNCHANGED
        self.below: dict[str, _Node] = {}


@final
class Trees:
    """The trees of one repository."""

    __slots__ = ("_objects", "_settings")

    def __init__(self, objects: Objects, settings: RepositorySettings) -> None:
        self._objects = objects
        self._settings = settings

    # Reading.

    def files(self, tree: str, folder: bytes = b"") -> Iterator[tuple[bytes, TreeEntry]]:
        """All files in a folder and below, in order of their names; folders are not told."""
        return self._walk(self._below(tree, folder), folder, 0, self._budget())

    def entry(self, tree: str, name: bytes) -> TreeEntry | None:
        """The file of this name; None where there is none, or a folder."""
        folder, _, last = name.rpartition(b"/")
        below = self._below(tree, folder)
        entry = self._rows(below).get(last)
        return None if _folder_id(entry) else entry

    def check(self, tree: str) -> None:
        """Look that a tree is there."""
        self._objects.tree(tree)

    def differences(
        self, before: str | None, after: str | None, folder: bytes = b""
    ) -> list[tuple[bytes, TreeEntry | None, TreeEntry | None]]:
        """The files that are not alike in both, in order of their names."""
        old = None if before is None else self._below(before, folder)
        new = None if after is None else self._below(after, folder)
        differences = self._differ(old, new, folder, 0, self._budget())
        return sorted(differences, key=lambda difference: difference[0])

    def added(self, before: str | None, after: str) -> Iterator[str]:
        """The ids of the trees and files in one tree that the other has not at the same place."""
        return self._added(before, after, 0, self._budget())

    def _added(
        self, before: str | None, after: str, depth: int, budget: Iterator[None]
    ) -> Iterator[str]:
        if before == after:
            return
        self._check_depth(b"", depth)
        yield after
        old = self._rows(before)
        for name, entry in self._rows(after).items():
            next(budget)
            if stat.S_ISDIR(entry.mode):
                yield from self._added(_folder_id(old.get(name)), entry.id, depth + 1, budget)
            elif old.get(name) != entry:
                yield entry.id

    def _walk(
        self, tree: str | None, folder: bytes, depth: int, budget: Iterator[None]
    ) -> Iterator[tuple[bytes, TreeEntry]]:
        self._check_depth(folder, depth)
        prefix = folder + b"/" if folder else b""
        for name, entry in self._rows(tree).items():
            next(budget)
            if stat.S_ISDIR(entry.mode):
                yield from self._walk(entry.id, prefix + name, depth + 1, budget)
            else:
                yield prefix + name, entry

    def _differ(
        self,
        before: str | None,
        after: str | None,
        folder: bytes,
        depth: int,
        budget: Iterator[None],
    ) -> Iterator[tuple[bytes, TreeEntry | None, TreeEntry | None]]:
        if before == after:
            return
        self._check_depth(folder, depth)
        prefix = folder + b"/" if folder else b""
        old, new = self._rows(before), self._rows(after)
        for name in old.keys() | new.keys():
            next(budget)
            was, now = old.get(name), new.get(name)
            if was == now:
                continue
            was_folder, now_folder = _folder_id(was), _folder_id(now)
            yield from self._differ(was_folder, now_folder, prefix + name, depth + 1, budget)
            was_file = None if was_folder else was
            now_file = None if now_folder else now
            if was_file != now_file:
                yield prefix + name, was_file, now_file

    def _rows(self, tree: str | None) -> dict[bytes, TreeEntry]:
        rows = [] if tree is None else self._objects.tree(tree)
        return {name: TreeEntry(mode, hex_id) for name, mode, hex_id in rows}

    def _below(self, tree: str, folder: bytes) -> str | None:
        """The folder's own tree; None where there is no such folder."""
        at: str | None = tree
        for part in folder.split(b"/") if folder else ():
            at = _folder_id(self._rows(at).get(part))
            if at is None:
                return None
        return at

    # Writing.

    def with_changes(
        self, tree: str | None, changes: Mapping[str, TreeEntry | None]
    ) -> tuple[str, list[ShaFile]]:
        """The tree with these files changed, and the trees that are new for it."""
        made: list[ShaFile] = []
        top = _Node()
        for path, change in changes.items():
            node = top
            for part in path.split("/"):
                node = node.below.setdefault(part, _Node())
            node.change = change
        edited = self._edit(tree, top, "", 0, made)
        if edited is None:
            made.append(Tree())
            return EMPTY_TREE, made
        return edited, made

    def _edit(
        self, tree: str | None, node: _Node, folder: str, depth: int, made: list[ShaFile]
    ) -> str | None:
        self._check_depth(folder.encode(), depth)
        rows = self._rows(tree)
        for name, inner in node.below.items():
            key, path = name.encode(), f"{folder}{name}"
            becomes = self._become(rows.get(key), inner, path, depth, made)
            if becomes is None:
                rows.pop(key, None)
            else:
                rows[key] = becomes
        if not rows:
            return None
        new = Tree()
        for key, entry in rows.items():
            new.add(key, entry.mode, ObjectID(entry.id.encode("ascii")))
        hex_id = new.id.decode("ascii")
        if hex_id != tree:
            made.append(new)
        return hex_id

    def _become(
        self, existing: TreeEntry | None, node: _Node, path: str, depth: int, made: list[ShaFile]
    ) -> TreeEntry | None:
        """What stands under a name afterwards: a file, a folder, or nothing."""
        inside, change = _folder_id(existing), node.change
        if change is None and (existing is None or inside):
            raise BadValue(path, None, "there is no such file to take out")
        below = None
        if node.below:
            if existing is not None and not inside and change is not None:
                raise BadValue(path, "a folder", "there is a file of this name; take it out")
            below = self._edit(inside, node, f"{path}/", depth + 1, made)
        elif inside:
            below = inside
        if isinstance(change, TreeEntry):
            if below is not None:
                raise BadValue(path, "a file", "there is a folder of this name; take out its files")
            return change
        return None if below is None else TreeEntry(FOLDER_MODE, below)

    # Bounds.

    def _check_depth(self, folder: bytes, depth: int) -> None:
        if depth > self._settings.depth_max:
            path = folder.decode(errors="backslashreplace")
            raise BadValue(
                "repository.folder", path, f"keep files at most {self._settings.depth_max} deep"
            )

    def _budget(self) -> Iterator[None]:
        """Gives way so often; a tree that holds itself a million times must not be walked."""
        yield from repeat(None, self._settings.entries_max)
        bound = self._settings.entries_max
        raise BadValue("repository.entries", f"more than {bound}", "raise entries_max, or split it")


def _folder_id(entry: TreeEntry | None) -> str | None:
    return entry.id if entry is not None and stat.S_ISDIR(entry.mode) else None
