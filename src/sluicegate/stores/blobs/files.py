"""Blobs as files: a name is a path below one folder, and a blob is a file that never changes.

A put writes a new file under a temporary name beside its place, syncs it, and only then gives it
its name: by a hard link where nothing may be there (the kernel refuses the second), by a rename
otherwise. Then the folder is synced. Whoever is killed at any step leaves the old blob or the new
one, and at most a temporary file, which a later put sweeps away.

Everything but a put with `if_absent` holds a lock over comparing and renaming, so no update between
the two is lost. Readers take no lock, and need no right to write: a file they have open stays whole
when its name goes to another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from threading import Lock
from typing import Final, final

from sluicegate.contracts.blob_store import NAMES_MAX, Blob
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.stores.blobs.files_folders import (
    BlobInPathError,
    is_folder,
    lock_folder,
    make,
    open_blob,
    open_folder,
    open_temporary,
    sweep,
)
from sluicegate.stores.blobs.files_url import FileBlobSettings
from sluicegate.stores.blobs.names import (
    NAME,
    check_bytes,
    check_put,
    folder_of,
    is_name,
    select_names,
    split_name,
    tag_of,
)

TRIES_MAX: Final = 5  # of a put whose folder is removed under it
PUTS_BETWEEN_SWEEPS: Final = 1_000  # puts, after which folders are swept again
_READ_BYTES: Final = 1 << 20


@final
class FileBlobs:
    """A `contracts.blob_store.BlobStore`. Threads may share it, and processes the folder."""

    def __init__(self, settings: FileBlobSettings) -> None:
        self.settings = settings
        self.what = f"the blob store in {settings.folder}"
        self._root = os.path.abspath(settings.folder)  # the same, wherever the process goes
        self._closed = False
        # The folders that this store has made durable and swept, until it has put so often.
        self._prepared: set[str] = set()
        self._prepared_lock = Lock()
        self._puts = 0

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        """What is there; None if nothing is. More bytes than that are a `BadValue`, unread."""
        segments = split_name(name)
        with self._translate_errors():
            try:
                with open_folder(self._root, segments[:-1]) as folder:
                    handle = open_blob(folder, segments[-1])
            except (FileNotFoundError, BlobInPathError):
                return None
            if handle is None:
                return None
            try:
                size = os.fstat(handle).st_size
                check_bytes(name, size, bytes_max)
                data = b"".join(_chunks(handle, size, bytes_max))
            finally:
                os.close(handle)
        tag = tag_of(data)
        return Blob(data, tag, digest=tag)

    def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_tag: str | None = None
    ) -> str:
        """Write whole; the new tag. On the disk when it returns."""
        segments = check_put(
            name, data, self.settings.bytes_max, if_absent=if_absent, if_tag=if_tag
        )
        with self._translate_errors():
            for _ in range(TRIES_MAX):
                try:
                    prepared = self._prepare_folder(segments[:-1])
                    with open_folder(self._root, segments[:-1]) as folder:
                        self._put(folder, segments, data, if_absent, if_tag, prepared)
                    return tag_of(data)
                except BlobInPathError as blob:
                    raise BadValue(
                        NAME, name, f"{blob} is a blob, and in files cannot hold others too"
                    ) from None
                except FileNotFoundError:
                    with self._prepared_lock:
                        self._prepared.clear()  # a folder is gone, or a slow part was swept
        raise Unavailable(
            self.what, f"the folder of {name} was removed {TRIES_MAX} times meanwhile"
        )

    def names(self, prefix: str = "", *, names_max: int = NAMES_MAX) -> Sequence[str]:
        """Return the names that begin so, in order; more than `names_max` are a `BadValue`."""
        folder = folder_of(prefix)
        with self._translate_errors():
            return select_names(self._walk(folder, prefix), prefix, names_max)

    def delete(self, name: str) -> None:
        """Forget what is there; nothing there is no error."""
        segments = split_name(name)
        with self._translate_errors():
            try:
                with (
                    open_folder(self._root, segments[:-1]) as folder,
                    self._lock(),
                ):
                    if not is_folder(folder, segments[-1]):
                        os.unlink(segments[-1], dir_fd=folder)
                        os.fsync(folder)
            except (FileNotFoundError, BlobInPathError):
                return

    def close(self) -> None:
        """Give back what is held: nothing is, between two calls."""
        self._closed = True

    def _put(
        self,
        folder: int,
        segments: Sequence[str],
        data: bytes,
        if_absent: bool,
        if_tag: str | None,
        prepared: bool,
    ) -> None:
        name, leaf = "/".join(segments), segments[-1]
        if if_absent and self._is_there(folder, leaf, name):
            raise self._conflict(folder, name)  # told before it costs the writing
        temporary = self._write_temporary(folder, data)
        try:
            if not prepared:
                sweep(folder, temporary, self.settings.sweep_us)
            self._make_room(folder, leaf, name)
            if if_absent:
                try:
                    os.link(
                        temporary,
                        leaf,
                        src_dir_fd=folder,
                        dst_dir_fd=folder,
                        follow_symlinks=False,
                    )
                except FileExistsError:
                    raise self._conflict(folder, name) from None
            else:
                with self._lock():
                    if if_tag is not None:
                        self._compare(folder, leaf, name, if_tag)
                    os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)

    def _write_temporary(self, folder: int, data: bytes) -> str:
        handle, temporary = open_temporary(folder, self.settings.mode)
        try:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                os.fsync(handle)
            finally:
                os.close(handle)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        return temporary

    def _conflict(self, folder: int, name: str) -> Conflict:
        # Whoever is told what is there will build on it, so first it must be so for good.
        os.fsync(folder)
        return Conflict(name, "something is there")

    def _compare(self, folder: int, leaf: str, name: str, if_tag: str) -> None:
        handle = open_blob(folder, leaf)
        found = None if handle is None else _digest(handle)
        if found != if_tag:
            os.fsync(folder)  # likewise
            raise Conflict(name, "nothing is there" if found is None else f"its tag is {found}")

    def _is_there(self, folder: int, leaf: str, name: str) -> bool:
        self._make_room(folder, leaf, name)
        try:
            os.stat(leaf, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _make_room(self, folder: int, leaf: str, name: str) -> None:
        """Remove an empty folder of this name; one that holds others stays, and is a refusal."""
        if is_folder(folder, leaf):
            try:
                os.rmdir(leaf, dir_fd=folder)
            except OSError as error:
                raise BadValue(
                    NAME, name, "it is a folder of other names, and in files cannot be both"
                ) from error

    def _prepare_folder(self, segments: Sequence[str]) -> bool:
        """Make the folder and those above it durable; False if this store did not know it."""
        path = "/".join(segments)
        with self._prepared_lock:
            self._puts += 1
            if self._puts % PUTS_BETWEEN_SWEEPS == 0:
                self._prepared.clear()
            if path in self._prepared:
                return True
        make(self._root, segments, self.settings.folder_mode)
        with self._prepared_lock:
            self._prepared.add(path)
        return False

    def _walk(self, segments: list[str], prefix: str) -> Iterator[str]:
        """Every name below a folder, but for what lies in folders without the prefix."""
        waiting = [segments]
        while waiting:
            segments = waiting.pop()
            above = "".join(f"{segment}/" for segment in segments)
            for name, folder in self._entries(segments):
                path = above + name
                if folder and path.startswith(prefix):
                    waiting.append([*segments, name])
                elif not folder and is_name(path):
                    yield path

    def _entries(self, segments: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """What is in a folder, one by one: it may be more than a list should hold."""
        try:
            with open_folder(self._root, segments) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    is_folder_too = entry.is_dir(follow_symlinks=False)
                    if is_folder_too or entry.is_file(follow_symlinks=False):
                        yield entry.name, is_folder_too
        except (FileNotFoundError, BlobInPathError):
            return

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (
            open_folder(self._root, ()) as root,
            lock_folder(root, self.settings.lock_us, self.what),
        ):
            yield

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        if self._closed:
            raise Unavailable(self.what, "it is closed")
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            if error.filename:
                reason = f"{error.filename}: {reason}"
            raise Unavailable(self.what, reason) from error


def _digest(handle: int) -> str:
    """Return the tag of the open file, which is closed."""
    digest = sha256()
    try:
        while chunk := os.read(handle, _READ_BYTES):
            digest.update(chunk)
    finally:
        os.close(handle)
    return digest.hexdigest()


def _chunks(handle: int, size: int, bytes_max: int) -> Iterator[bytes]:
    # A file that somebody else lets grow is read no further than was asked for. One that does not
    # is read at once: to join its pieces would be to copy it.
    left = bytes_max
    while left > 0:
        chunk = os.read(handle, min(left, max(size, _READ_BYTES)))
        if not chunk:
            return
        left -= len(chunk)
        yield chunk
