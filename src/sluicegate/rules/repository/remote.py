"""Remote: another repository, by URL or path, to take commits from or to bring them to.

Nothing is ever forced: a ref follows, here and there, or it is a `Conflict`. The work is done by a
process of its own (`carrier.py`), which is killed when its time is over. The URL goes there by a
pipe, since whoever looks at the processes of a machine sees their arguments; and whatever is fields
of it is fields without the user and password that may be in it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.rules.repository.refs import HEAD, check_ref
from sluicegate.rules.repository.settings import RepositorySettings

SCHEMES: Final = ("file", "git", "http", "https", "ssh", "git+ssh")
_PROGRAM: Final = "from sluicegate.rules.repository.carrier import main; main()"
_PREFIX: Final = "tmp_objdir-sluicegate-"  # `git gc` takes away what a killed process left so
_SEEN_CHARS_MAX: Final = 500
_TRIES: Final = 8


class LocalRepository(Protocol):
    """What taking from a remote and bringing to it need of the repository that is here."""

    path: str
    settings: RepositorySettings

    @property
    def objects_folder(self) -> str:
        """Where the objects are."""
        ...

    def tip(self, ref: str) -> str | None:
        """The id that a ref leads to, if there is one."""
        ...

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether the newer commit is the older one, or descends from it."""
        ...

    def move(self, ref: str, to: str, *, expected: str | None) -> None:
        """Have a ref lead to a commit, if it leads to what is expected."""
        ...


def fetch(
    repository: LocalRepository, url: str, ref: str, *, into: str | None, timeout_us: int | None
) -> str:
    """Bring the commit that a ref leads to elsewhere; `into` follows it."""
    if into is not None:
        check_ref(into)
    folder = _new_folder(repository)
    try:
        task = {"do": "fetch", "ref": check_ref(ref), "aside": folder}
        commit = _carry(repository, url, task, timeout_us)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if into is not None:
        follow(repository, into, commit, f"{redact(url)} says {commit}")
    return commit


def push(
    repository: LocalRepository, url: str, commit: str, to: str, timeout_us: int | None
) -> None:
    """Have a ref of another machine's repository lead to a commit that is here."""
    _carry(repository, url, {"do": "push", "to": to, "commit": commit}, timeout_us)


def follow(repository: LocalRepository, ref: str, commit: str, expected: str) -> None:
    """Move a ref on to a commit that descends from where it leads."""
    for _ in range(_TRIES):
        tip = repository.tip(ref)
        if tip == commit:
            return
        if tip is not None and not repository.is_ancestor(tip, commit):
            raise Conflict(ref, f"it leads to {tip}; {expected}, which does not descend from that")
        try:
            repository.move(ref, commit, expected=tip)
        except Conflict:
            continue
        return
    raise Conflict(ref, f"it was moved {_TRIES} times meanwhile")


def redact(url: str) -> str:
    """A URL as it may be told: without who connects."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def local_path(url: str) -> str | None:
    """The path that a URL leads to on this machine; None if it leads away from it."""
    if "\0" in url or not url.isprintable() or not url or url.startswith("-"):
        raise BadValue("url", redact(url), "give the URL of a repository, or its path")
    scheme, mark, _ = url.partition("://")
    if mark:
        if scheme not in SCHEMES:
            raise BadValue("url", redact(url), f"begin it with one of {', '.join(SCHEMES)}")
        return unquote(urlsplit(url).path) if scheme == "file" else None
    # host:path is ssh, as for git, unless a slash comes first.
    host, colon, _ = url.partition(":")
    return None if colon and "/" not in host else os.path.abspath(url)


def _new_folder(repository: LocalRepository) -> str:
    try:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=repository.objects_folder)
        os.mkdir(os.path.join(folder, "pack"))
    except OSError as error:
        raise Unavailable(f"the repository {repository.path}", str(error)) from None
    return folder


def _carry(
    repository: LocalRepository, url: str, task: Mapping[str, Any], timeout_us: int | None
) -> str:
    path, settings = local_path(url), repository.settings
    limit_us = settings.remote_us_max if timeout_us is None else timeout_us
    whole = {
        **task,
        "path": os.path.abspath(repository.path),
        "url": url if path is None else path,
        "shown": redact(url),
        "bytes_max": settings.remote_bytes_max,
    }
    answer = _ask(whole, url, limit_us)
    if "commit" in answer:
        return str(answer["commit"])
    fields = {name: without_secrets(str(text), url) for name, text in answer.items()}
    if "conflict" in fields:
        raise Conflict(fields["conflict"], fields["seen"])
    if "field" in fields:
        raise BadValue(fields["field"], fields["value"], fields["remedy"])
    raise Unavailable(redact(url), fields.get("unavailable", "it ended without a word"))


def _ask(task: Mapping[str, Any], url: str, limit_us: int) -> dict[str, Any]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "GIT_TERMINAL_PROMPT": "0",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # no terminal to ask for a password, and one group to end
    )
    try:
        out, trouble = process.communicate(json.dumps(task).encode(), limit_us / 1e6)
    except subprocess.TimeoutExpired:
        raise Unavailable(redact(url), f"it was not done within {limit_us / 1e6:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    try:
        answer = json.loads(out)
    except ValueError:
        answer = {"unavailable": trouble.decode(errors="replace")[-_SEEN_CHARS_MAX:].strip()}
    return dict(answer)


def without_secrets(text: str, url: str) -> str:
    """What is fields, without what a URL says of who connects."""
    text = text.replace(url, redact(url))
    if "://" in url:
        parts = urlsplit(url)
        who = parts.netloc.rpartition("@")[0]
        for secret in (who, parts.query, parts.password, unquote(parts.password or "")):
            if secret:
                text = text.replace(secret, "***")
    return text[:_SEEN_CHARS_MAX]


def is_checked_out(own: str, ref: str) -> bool:
    """Whether a folder's HEAD is this ref."""
    try:
        with open(os.path.join(own, HEAD), encoding="utf-8") as file:
            return file.read().strip() == f"ref: {ref}"
    except (OSError, UnicodeDecodeError):
        return False
