"""Notes: marks on commits for people, as `git notes --ref=sluicegate` keeps them.

The notes are a commit of their own whose files are called after the commits they are about. With
many of them git sorts them into folders by the first digits; ours go one folder deep, and are found
however deep git has put them.
"""

from __future__ import annotations

from typing import Final

from dulwich.objects import Blob

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.repository.objects import Objects
from sluicegate.rules.repository.trees import FILE_MODE, TreeEntry, Trees

REF: Final = "refs/notes/sluicegate"
MESSAGE: Final = "Notes added by Sluicegate"
_DEPTHS: Final = (1, 0, 2, 3)  # where to look first


def read_note(objects: Objects, trees: Trees, tip: str | None, commit: str) -> str:
    """What is noted of a commit."""
    note = _find(objects, trees, tip, commit)
    return "" if note is None else objects.blob(note[1]).decode("utf-8", "replace").strip("\n")


def append_note(
    objects: Objects, trees: Trees, tip: str | None, commit: str, text: str
) -> tuple[dict[str, TreeEntry | None], Blob]:
    """What to change so that a commit's note says this too, after a blank line."""
    if not text.strip() or "\0" in text:
        raise BadValue("note", text, "note something, in plain text")
    try:
        added = text.strip("\n").encode() + b"\n"
    except UnicodeEncodeError:
        raise BadValue("note", text, "note something, in plain text") from None
    note = _find(objects, trees, tip, commit)
    before = b"" if note is None else objects.blob(note[1]).rstrip(b"\n") + b"\n\n"
    blob = Blob.from_string(before + added if before.strip() else added)
    name = _name(commit, _DEPTHS[0]) if note is None else note[0]
    return {name: TreeEntry(FILE_MODE, blob.id.decode("ascii"))}, blob


def _find(objects: Objects, trees: Trees, tip: str | None, commit: str) -> tuple[str, str] | None:
    if tip is None:
        return None
    tree = objects.commit(tip).tree.decode("ascii")
    for depth in _DEPTHS:
        name = _name(commit, depth)
        entry = trees.entry(tree, name.encode())
        if entry is not None and entry.is_file:
            return name, entry.id
    return None


def _name(commit: str, depth: int) -> str:
    parts = [commit[2 * at : 2 * at + 2] for at in range(depth)]
    return "/".join([*parts, commit[2 * depth :]])
