"""Blobs in this process's memory: for tests, and for trying things out. They end with it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Final, final

from sluicegate.contracts.blob_store import NAMES_MAX, Blob
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.stores.blobs.names import (
    BLOB_BYTES_MAX,
    check_bytes,
    check_put,
    folder_of,
    select_names,
    split_name,
    tag_of,
)

URL: Final = "memory:"
_WHAT: Final = "the blob store in memory"


@final
class MemoryBlobs:
    """A `contracts.blob_store.BlobStore`. Each is a store of its own; threads may share it."""

    __slots__ = ("_blobs", "_bytes", "_closed", "_lock", "bytes_max", "what")

    def __init__(self, *, bytes_max: int = BLOB_BYTES_MAX) -> None:
        self.what = _WHAT
        self.bytes_max = bytes_max  # of all blobs together
        self._blobs: dict[str, Blob] = {}
        self._bytes = 0
        self._lock = Lock()
        self._closed = False

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        """What is there; None if nothing is. More bytes than that are a `BadValue`, unread."""
        split_name(name)
        with self._lock:
            self._check_open()
            blob = self._blobs.get(name)
        if blob is not None:
            check_bytes(name, len(blob.data), bytes_max)
        return blob

    def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_tag: str | None = None
    ) -> str:
        """Write whole; the new tag."""
        check_put(name, data, self.bytes_max, if_absent=if_absent, if_tag=if_tag)
        blob = Blob(bytes(data), tag_of(data))
        with self._lock:
            self._check_open()
            old = self._blobs.get(name)
            if if_absent and old is not None:
                raise Conflict(name, "something is there")
            if if_tag is not None and (old is None or old.tag != if_tag):
                raise Conflict(name, "nothing is there" if old is None else f"its tag is {old.tag}")
            total = self._bytes + len(data) - (0 if old is None else len(old.data))
            if total > self.bytes_max:
                raise Unavailable(_WHAT, f"it holds {self._bytes:,} bytes of {self.bytes_max:,}")
            self._blobs[name], self._bytes = blob, total
        return blob.tag

    def names(self, prefix: str = "", *, names_max: int = NAMES_MAX) -> Sequence[str]:
        """Return the names that begin so, in order; more than `names_max` are a `BadValue`."""
        folder_of(prefix)
        with self._lock:
            self._check_open()
            return select_names(self._blobs, prefix, names_max)

    def delete(self, name: str) -> None:
        """Forget what is there; nothing there is no error."""
        split_name(name)
        with self._lock:
            self._check_open()
            old = self._blobs.pop(name, None)
            if old is not None:
                self._bytes -= len(old.data)

    def close(self) -> None:
        """Give back what is held."""
        with self._lock:
            self._closed = True
            self._blobs.clear()
            self._bytes = 0

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(_WHAT, "it is closed")


def open_memory(url: str) -> MemoryBlobs:
    """Return a new store, for `memory:`; there is nothing to set."""
    if url != URL:
        raise BadValue("blob_store.url", url, "write memory: alone; each is a store of its own")
    return MemoryBlobs()
