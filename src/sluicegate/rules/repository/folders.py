"""Folders: where a repository keeps its objects and its refs, and whether they can be used here.

A path may be a bare repository, a work tree, its `.git`, or the file that a linked work tree has in
place of one. The work tree itself is never read and never written.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from dulwich.config import ConfigFile
from dulwich.file import SharedPerm
from dulwich.repo import parse_shared_repository

from sluicegate.contracts.errors import BadValue, Unavailable

_REMEDY: Final = "give a bare git repository, or a work tree's .git"
_GITFILE: Final = b"gitdir: "
_HARMLESS: Final = frozenset(
    {b"noop", b"noop-v1", b"preciousobjects", b"relativeworktrees", b"worktreeconfig"}
)


class GitFolders(NamedTuple):
    """The folders of a repository. `own` has HEAD, `common` all else; mostly they are the same."""

    own: str
    common: str
    bare: bool
    shared: SharedPerm | None

    @property
    def objects(self) -> str:
        """Where objects are."""
        return os.path.join(self.common, "objects")


def find_folders(path: str) -> GitFolders:
    """The repository at a path; a `BadValue` says why it is none that can be used."""
    if not path or "\0" in path:
        raise BadValue("repository.path", path, _REMEDY)
    try:
        own = _own_folder(os.path.abspath(path))
        common = _common_folder(own)
        if not os.path.isdir(os.path.join(common, "objects")) or not (
            os.path.isdir(os.path.join(common, "refs")) and os.path.exists(f"{own}/HEAD")
        ):
            raise BadValue("repository.path", path, f"there is no git repository; {_REMEDY}")
        return GitFolders(own, common, *_read_config(path, common))
    except (PermissionError, IsADirectoryError) as error:
        raise Unavailable(f"the repository {path}", str(error)) from None


def _own_folder(path: str) -> str:
    inner = os.path.join(path, ".git")
    start = inner if os.path.lexists(inner) else path
    if not os.path.isfile(start):
        return start
    with open(start, "rb") as file:
        line = file.read(8_192).rstrip(b"\r\n")
    if not line.startswith(_GITFILE):
        raise BadValue("repository.path", path, f"there is no git repository; {_REMEDY}")
    return os.path.normpath(
        os.path.join(os.path.dirname(start), os.fsdecode(line.removeprefix(_GITFILE)))
    )


def _common_folder(own: str) -> str:
    try:
        with open(os.path.join(own, "commondir"), "rb") as file:
            return os.path.normpath(os.path.join(own, os.fsdecode(file.read(8_192).strip())))
    except (FileNotFoundError, NotADirectoryError):
        return own


def _read_config(path: str, common: str) -> tuple[bool, SharedPerm | None]:
    """What the configuration says: bare or not, and who may write. What is unknown is refused."""
    try:
        config = ConfigFile.from_path(os.path.join(common, "config"))
        version = int(config.get(b"core", b"repositoryformatversion"))
    except FileNotFoundError:
        return True, None
    except KeyError:
        version = 0
    except ValueError as error:
        raise BadValue("repository.path", path, f"its config cannot be read: {error}") from None
    if version not in (0, 1):
        raise BadValue("repository.path", path, f"its format is {version}; 0 and 1 are known here")
    if version == 1:
        for name, value in config.items((b"extensions",)):
            _check_extension(path, name.lower(), value.lower())
    bare = config.get_boolean(b"core", b"bare", False)
    try:
        return bare, parse_shared_repository(config.get(b"core", b"sharedrepository"))
    except (KeyError, ValueError):
        return bare, None


def _check_extension(path: str, name: bytes, value: bytes) -> None:
    fine = (
        name in _HARMLESS
        or (name == b"objectformat" and value == b"sha1")
        or (name == b"refstorage" and value == b"files")
    )
    if not fine:
        extension = f"{name.decode(errors='replace')} = {value.decode(errors='replace')}"
        raise BadValue(
            "repository.path",
            path,
            f"it uses {extension}, unknown here; clone it as plain git (sha1, refs in files)",
        )
