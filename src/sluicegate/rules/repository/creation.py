"""Creation: a new bare repository, which appears at its path whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dulwich.config import ConfigFile, StackedConfig
from dulwich.repo import Repo

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.repository.durable_files import make_folder, sync_all, sync_file
from sluicegate.rules.repository.refs import check_ref

_SYNCED: Final = b"committed,reference"


@contextmanager
def new_folder(path: str, branch: str) -> Iterator[tuple[str, str]]:
    """A bare repository without commits, and its branch's ref; it moves to its path at the end."""
    ref = check_ref(f"refs/heads/{branch}")
    where = os.path.abspath(path)
    if "\0" in path or not path:
        raise BadValue("repository.path", path, "give a folder")
    if os.path.lexists(where) and not (os.path.isdir(where) and not os.listdir(where)):
        raise BadValue("repository.path", path, "something is there; open it, or choose another")
    try:
        make_folder(os.path.dirname(where), shared=None)
        draft = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(where))
        try:
            # Nobody's own configuration of git is asked.
            Repo.init_bare(draft, config=StackedConfig([]), default_branch=branch.encode()).close()
            _have_git_sync(os.path.join(draft, "config"))
            os.chmod(draft, os.stat(os.path.join(draft, "objects")).st_mode)
            yield draft, ref
            sync_all(draft)
            _make_durable(draft, where, path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        sync_file(os.path.dirname(where))
    except OSError as error:
        raise Unavailable(f"the repository {path}", f"it cannot be made: {error}") from None


_OWN_REFS: Final = (b"refs/sluicegate", b"refs/notes/sluicegate")


def _have_git_sync(path: str) -> None:
    """Git leaves what is pushed to the system unless it is told to sync it.

    And it lets whoever may push move any ref; those of ours decide what is live.
    """
    config = ConfigFile.from_path(path)
    config.set(b"core", b"fsync", _SYNCED)
    for refs in _OWN_REFS:
        config.add(b"receive", b"hideRefs", refs)
    config.write_to_path(path)


def _make_durable(draft: str, where: str, path: str) -> None:
    try:
        os.rename(draft, where)
    except OSError:
        if not os.path.lexists(where):
            raise
        raise BadValue("repository.path", path, "something came to be there meanwhile") from None
