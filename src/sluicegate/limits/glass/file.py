"""Glass in a file: for processes of one machine, or of one file system.

The page is replaced whole by a rename, under a lock beside it, so a reader never sees half of one.
The audit is a file of JSON lines beside it, written and synced before the page. All three are
0600, and belong to who owns the page or its folder, also when root has written them.

What is read must be a plain file that belongs to root, to us, or to the owner of its folder, and
that the world may not write: else anybody could break the glass.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final
from urllib.parse import unquote, urlsplit

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.limits.glass.page import PAGE_BYTES_MAX, GlassPage

AUDIT_BYTES_MAX: Final = 1_048_576  # then it becomes the old one, and the one before that goes
LOCK_S_MAX: Final = 2.0
_LOCK_PAUSE_S: Final = 0.01
_MODE: Final = 0o600
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW


@final
class FileGlassStore:
    """A page in a file. `clock` must tell the same time in every process that shares it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = Path(path)
        self._lock = Path(f"{path}.lock")
        self._audit = Path(f"{path}.audit")
        self._old_audit = Path(f"{path}.audit.old")
        self._clock = clock
        self.what = f"the glass in {path}"

    async def read(self) -> GlassPage:
        """Return the page."""
        try:
            return self._read()
        except OSError as error:
            raise self._unavailable(error) from None

    async def swap(
        self, page: GlassPage, text: bytes, lines: Sequence[bytes], until_us: int
    ) -> bool:
        """Put `text` in place of `page`, if that is still there."""
        try:
            async with self._hold_lock():
                if not page.foreign and self._read().text != page.text:
                    return False
                owner = self._owner()
                self._append(lines, owner)
                self._replace(text, owner)
                return True
        except OSError as error:
            raise self._unavailable(error) from None

    async def lines(self, last: int) -> list[bytes]:
        """Return the newest lines of the audit."""
        found: list[bytes] = []
        try:
            for path in (self._old_audit, self._audit):
                if path.exists():
                    found += _read_file(path, 2 * AUDIT_BYTES_MAX).splitlines()
        except OSError as error:
            raise self._unavailable(error) from None
        return found[-last:]

    async def close(self) -> None:
        """Nothing is held."""

    # Inside.

    def _read(self) -> GlassPage:
        now_us = self._clock.now_us()
        try:
            # A pipe under this name must not make us wait for its writer.
            handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return GlassPage(now_us, b"")
        try:
            foreign = self._why_untrusted(os.fstat(handle))
            if foreign:
                return GlassPage(now_us, b"", foreign)
            with open(handle, "rb", closefd=False) as file:
                # A byte more than a page may have is enough to tell that it is none.
                return GlassPage(now_us, file.read(PAGE_BYTES_MAX + 1))
        finally:
            os.close(handle)

    def _why_untrusted(self, found: os.stat_result) -> str:
        """Return what is wrong with the file, whatever it says; nothing if it is all right."""
        if not stat.S_ISREG(found.st_mode):
            return "is no plain file"
        if found.st_mode & stat.S_IWOTH:
            return "may be written by anybody (chmod 600)"
        if found.st_uid not in {0, os.geteuid(), os.stat(self._path.parent).st_uid}:
            return f"belongs to somebody else (user {found.st_uid})"
        return ""

    @asynccontextmanager
    async def _hold_lock(self) -> AsyncIterator[None]:
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | _SAFELY, _MODE)
        try:
            _chown(handle, self._owner())
            for _ in range(int(LOCK_S_MAX / _LOCK_PAUSE_S)):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_PAUSE_S)
            else:
                raise Unavailable(self.what, f"{self._lock} is held by another writer")
            yield
        finally:
            os.close(handle)

    def _owner(self) -> tuple[int, int]:
        """Who the files belong to: root may break the glass, and yet its owner must read it."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            found = os.stat(self._path.parent)
        return found.st_uid, found.st_gid

    def _append(self, lines: Sequence[bytes], owner: tuple[int, int]) -> None:
        if not lines:
            return
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFELY
        handle = os.open(self._audit, flags, _MODE)
        with open(handle, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            text = b"".join(line + b"\n" for line in lines)
            if size:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # who wrote it has not come to its end
                    text = b"\n" + text
            _chown(handle, owner)
            while text:
                text = text[os.write(handle, text) :]
            os.fsync(handle)
            size = file.seek(0, os.SEEK_END)
        if size > AUDIT_BYTES_MAX:
            os.replace(self._audit, self._old_audit)

    def _replace(self, text: bytes, owner: tuple[int, int]) -> None:
        fresh = Path(f"{self._path}.new")  # under the lock, so one name is enough
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, _MODE)
        with open(handle, "wb") as file:
            _chown(handle, owner)
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.replace(fresh, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(self.what, f"{error.filename or self._path}: {error.strerror or error}")


def path_of(url: str) -> str:
    """Return the path that `file:/path` or `file:///path` says."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in {"", "localhost"} or parts.query or parts.fragment or "\0" in path:
        raise BadValue("glass.url", url, 'write it as "file:/path/glass.json"')
    if not path.startswith("/") or path.endswith("/"):
        raise BadValue("glass.url", url, 'give the whole path of a file: "file:/path/glass.json"')
    return path


def _chown(handle: int, owner: tuple[int, int]) -> None:
    if os.geteuid() == 0:
        os.fchown(handle, *owner)


def _read_file(path: Path, bytes_max: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | _SAFELY), "rb") as file:
        return file.read(bytes_max)
