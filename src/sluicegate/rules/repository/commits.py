"""Commits: what a commit may be made of, and the commit object.

Names are checked more strictly than git does: what is written here must be harmless in any work
tree it is ever checked out to, on any system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dulwich.objects import Commit as GitCommit
from dulwich.objects import ObjectID

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import Author, Commit
from sluicegate.rules.repository.settings import RepositorySettings

_PART_BYTES_MAX: Final = 255
_AT_US_MAX: Final = 1 << 52
_SECOND_US: Final = 1_000_000
_FORBIDDEN: Final = frozenset('\\:<>"|?*')


def check_name(name: str, settings: RepositorySettings) -> str:
    """A file's name from the top of the repository; a `BadValue` where it is no good one."""
    remedy = bad_name(name, settings)
    if remedy:
        raise BadValue("file", name, remedy)
    return name


def bad_name(name: str, settings: RepositorySettings) -> str:
    """What is wrong with a name; nothing if it is fine."""
    if not name.isprintable():
        return "leave out what cannot be printed"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not text"
    if size > settings.name_bytes_max:
        return f"use at most {settings.name_bytes_max} bytes"
    if name.count("/") >= settings.depth_max:
        return f"keep files at most {settings.depth_max} deep"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return "give the path from the top of the repository, as limits/web.yaml"
        if part.lower().startswith((".git", "git~")):
            return "leave names that begin with .git to git"
        if _FORBIDDEN.intersection(part) or part.endswith((" ", ".")):
            return "use no character that some system forbids in names"
        if len(part.encode()) > _PART_BYTES_MAX:
            return f"use at most {_PART_BYTES_MAX} bytes between slashes"
    return ""


def check_contents(changes: Mapping[str, bytes | None], settings: RepositorySettings) -> None:
    """Names, sizes and how many; a `BadValue` says which."""
    if len(changes) > settings.files_max:
        raise BadValue("files", len(changes), f"change at most {settings.files_max} at once")
    total = 0
    for name, content in changes.items():
        check_name(name, settings)
        size = 0 if content is None else len(content)
        total += size
        if size > settings.file_bytes_max:
            raise BadValue(name, size, f"use at most {settings.file_bytes_max} bytes a file")
    if total > settings.bytes_max:
        raise BadValue("files", total, f"use at most {settings.bytes_max} bytes at once")


def new_commit(
    tree: str,
    parents: Sequence[str],
    *,
    author: Author,
    at_us: int,
    committed_us: int,
    message: str,
    settings: RepositorySettings,
) -> GitCommit:
    """The commit object; its author is its committer too, and its zone is UTC."""
    commit = GitCommit()
    commit.tree = ObjectID(tree.encode("ascii"))
    commit.parents = [ObjectID(parent.encode("ascii")) for parent in parents]
    commit.author = commit.committer = _person(author)
    commit.author_time, commit.commit_time = _seconds(at_us), _seconds(committed_us)
    commit.author_timezone = commit.commit_timezone = 0
    commit.message = _text(message, settings)
    return commit


def commit_of(commit: GitCommit) -> Commit:
    """A commit object as a plain value; what is no text in it is shown as well as can be."""
    charset = (commit.encoding or b"utf-8").decode("ascii", "replace")
    name, _, email = _decode(commit.author, charset).rpartition(" <")
    return Commit(
        commit.id.decode("ascii"),
        tuple(parent.decode("ascii") for parent in commit.parents),
        Author(name.strip(), email.rstrip("> ")),
        int(commit.author_time) * _SECOND_US,
        _decode(commit.message, charset).rstrip("\n"),
    )


def _decode(text: bytes, charset: str) -> str:
    try:
        return text.decode(charset, "replace")
    except LookupError:
        return text.decode("utf-8", "replace")


def _person(author: Author) -> bytes:
    for field, text in zip(author._fields, author, strict=True):
        if not text.isprintable() or "<" in text or ">" in text or text != text.strip():
            raise BadValue(f"author.{field}", text, "give plain text without < and >")
    if not author.name or len(author.name) + len(author.email) > _PART_BYTES_MAX * 2:
        raise BadValue("author.name", author.name, "give a name, and a short one")
    return _encode("author", f"{author.name} <{author.email}>")


def _text(message: str, settings: RepositorySettings) -> bytes:
    text = message.strip("\n")
    encoded = _encode("message", text)
    if not text.strip() or "\0" in text:
        raise BadValue("message", message, "say in plain text what is changed, and why")
    if len(encoded) > settings.message_bytes_max:
        raise BadValue("message", message, f"use at most {settings.message_bytes_max} bytes")
    return encoded + b"\n"


def _encode(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadValue(field, text, "give text") from None


def _seconds(at_us: int) -> int:
    if not 0 <= at_us <= _AT_US_MAX:
        raise BadValue("at_us", at_us, "give microseconds since 1970")
    return at_us // _SECOND_US
