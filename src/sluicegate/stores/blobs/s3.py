"""Blobs as objects of an S3 bucket, or of any server that speaks S3 and enforces conditions.

A put is one request, so it is whole or not there. `if_absent` is `If-None-Match: *`, `if_tag` is
`If-Match`. A server that takes these headers and does not mind them would let two writers both win;
so before the first such write a small object, `.sluicegate-probe`, is written in a way that must be
refused.

An overloaded server answers 503 SlowDown, and every request is repeated with a growing pause. A
conditional write that failed may have been made all the same; then its repetition is refused. So a
refusal after such a failure is settled by a read: a blob that holds our bytes is our write, or
equal to it. If another writer has replaced our blob since, the result is `Conflict`, as for a late
write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Lock
from typing import TYPE_CHECKING, Final, TypeVar, final

from sluicegate.contracts.blob_store import NAMES_MAX, Blob
from sluicegate.contracts.errors import BadValue, Conflict, MissingPackage, Unavailable
from sluicegate.stores.blobs.names import (
    check_bytes,
    check_put,
    folder_of,
    is_name,
    select_names,
    split_name,
)
from sluicegate.stores.blobs.s3_errors import (
    describe,
    is_answered,
    is_missing,
    is_refusal,
    may_pass,
)
from sluicegate.stores.blobs.s3_url import S3Settings

try:
    import obstore
    from obstore.exceptions import (
        BaseError,
        UnknownConfigurationKeyError,
    )
    from obstore.store import S3Store
except ImportError as error:
    raise MissingPackage("obstore", "s3") from error

if TYPE_CHECKING:
    from obstore import PutMode

T = TypeVar("T")

PROBE: Final = ".sluicegate-probe"  # begins with a dot, so it is nobody's name
_PROBED: Final = b"sluicegate asks whether this server enforces conditions; it may be removed\n"
_NO_TAG: Final = '"00000000000000000000000000000000"'
_PAGE: Final = 1_000
_GAP_US_MIN, _GAP_US_MAX = 50_000, 1_000_000  # between two attempts
_UNANSWERED_RETRIES: Final = 2  # each may take a whole time-out, and a dead server stays dead
_FAILED: Final = (BaseError, OSError, ValueError, RuntimeError)  # what the driver raises
# The driver's threads do not outlive a fork: a child that inherits them would wait forever.
_used_by: list[int] = []


@final
class S3Blobs:
    """A `contracts.blob_store.BlobStore`. It connects by itself; threads may share it."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        where = f"{settings.bucket}/{settings.prefix}".rstrip("/")
        self.what = f"the blob store s3://{where} at {settings.endpoint or 'its usual endpoint'}"
        self._above = f"{settings.prefix}/" if settings.prefix else ""
        self._lock = Lock()
        self._store: S3Store | None = None
        self._enforced: set[str] = set()  # the conditions that this server was seen to enforce
        self._closed = False

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        """What is there; None if nothing is. More bytes than that are a `BadValue`, unread."""
        split_name(name)

        def read(store: S3Store) -> Blob:
            answer = obstore.get(store, self._above + name)
            meta = answer.meta
            # Only the head has come so far, and what is dropped here is not sent on.
            check_bytes(name, meta["size"], bytes_max)
            return Blob(bytes(answer.bytes()), self._tag(meta["e_tag"]))

        return self._retry(read, absent=None)

    def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_tag: str | None = None
    ) -> str:
        """Write whole; the new tag. Durable, and visible to every reader, when it returns."""
        check_put(name, data, self.settings.bytes_max, if_absent=if_absent, if_tag=if_tag)
        if if_absent:
            self._check_enforced("If-None-Match", self._enforces_absence)
            return self._conditional(name, data, "create")
        if if_tag is not None:
            self._check_enforced("If-Match", self._enforces_tags)
            return self._conditional(name, data, {"e_tag": if_tag})
        return self._retry(lambda store: self._write(store, name, data, "overwrite"))

    def names(self, prefix: str = "", *, names_max: int = NAMES_MAX) -> Sequence[str]:
        """Return the names that begin so, in order; more than `names_max` are a `BadValue`."""
        folder = "".join(f"{segment}/" for segment in folder_of(prefix))
        return self._retry(lambda store: select_names(self._list(store, folder), prefix, names_max))

    def delete(self, name: str) -> None:
        """Forget what is there; nothing there is no error."""
        split_name(name)
        self._retry(lambda store: obstore.delete(store, self._above + name), absent=None)

    def close(self) -> None:
        """Give back what is held: the connections."""
        with self._lock:
            self._closed = True
            self._store = None

    def _list(self, store: S3Store, folder: str) -> Iterator[str]:
        count = 0
        for page in obstore.list(store, self._above + folder or None, chunk_size=_PAGE):
            count += len(page)
            if count > self.settings.listed_max:
                raise BadValue(
                    "s3.listed_max",
                    self.settings.listed_max,
                    f"more are below {folder or 'the top'}; ask for a longer prefix with a slash",
                )
            for entry in page:
                name = entry["path"].removeprefix(self._above)
                if is_name(name):
                    yield name

    def _conditional(self, name: str, data: bytes, mode: PutMode) -> str:
        may_be_made = False

        def write(store: S3Store) -> str:
            nonlocal may_be_made
            try:
                return self._write(store, name, data, mode)
            except _FAILED as error:
                if not (is_missing(error) or is_refusal(error)):
                    may_be_made = True
                    raise
                if may_be_made and (tag := self._tag_of(name, data)) is not None:
                    return tag
                there = "something is there" if mode == "create" else "its tag is another"
                what = "nothing is there" if is_missing(error) else there
                raise Conflict(name, what) from None

        return self._retry(write)

    def _tag_of(self, name: str, data: bytes) -> str | None:
        """Return the tag of a blob that holds these bytes; None if it holds others."""
        try:
            blob = self.get(name, bytes_max=len(data))
        except BadValue:
            return None
        return blob.tag if blob is not None and blob.data == data else None

    def _write(self, store: S3Store, name: str, data: bytes, mode: PutMode) -> str:
        # In one piece: the parts of a larger upload would have no condition, and stay if it fails.
        put = obstore.put(store, self._above + name, data, mode=mode, use_multipart=False)
        return self._tag(put["e_tag"])

    def _tag(self, found: str | None) -> str:
        if not found:
            raise Unavailable(self.what, "it gives no tags (ETag), so nothing could be replaced")
        return found

    def _check_enforced(self, header: str, probe: Callable[[S3Store], bool]) -> None:
        if header in self._enforced:
            return
        if not self._retry(probe):
            raise Unavailable(
                self.what,
                f"it does not enforce conditional writes ({header}), so of two who write at once "
                "both would be told that they won, and one version would be lost; take a server "
                "that does, or files:DIR",
            )
        self._enforced.add(header)

    def _enforces_absence(self, store: S3Store) -> bool:
        # Whoever finds the object there from an earlier time has the answer at once.
        return self._refuses(store, "create") or self._refuses(store, "create")

    def _enforces_tags(self, store: S3Store) -> bool:
        return self._refuses(store, {"e_tag": _NO_TAG})

    def _refuses(self, store: S3Store, mode: PutMode) -> bool:
        try:
            self._write(store, PROBE, _PROBED, mode)
        except _FAILED as error:
            if is_refusal(error) or is_missing(error):
                return True
            raise
        return False

    def _retry(self, request: Callable[[S3Store], T], **absent: T) -> T:
        """What the server answers in one of several attempts; every error of it is ours to tell."""
        store = self._open()
        gap_us = _GAP_US_MIN
        left, unanswered_left = self.settings.retries, _UNANSWERED_RETRIES
        while True:
            try:
                return request(store)
            except (BadValue, Unavailable):
                raise
            except _FAILED as error:
                if absent and is_missing(error):
                    return absent["absent"]
                if not is_answered(error):
                    left, unanswered_left = min(left, unanswered_left), unanswered_left - 1
                if left <= 0 or not may_pass(error):
                    raise Unavailable(self.what, describe(error)) from None
            left -= 1
            Event().wait(gap_us / 1e6)
            gap_us = min(2 * gap_us, _GAP_US_MAX)

    def _open(self) -> S3Store:
        with self._lock:
            if self._closed:
                raise Unavailable(self.what, "it is closed")
            if not _used_by:
                _used_by.append(os.getpid())
            if _used_by[0] != os.getpid():
                raise Unavailable(self.what, "S3 was used before a fork; start the process anew")
            if self._store is None:
                self._store = self._connect()
            return self._store

    def _connect(self) -> S3Store:
        settings = self.settings
        # What the URL says stands above the environment, which may name servers and modes too.
        config = {"conditional_put": "etag"}
        if settings.region:
            config["region"] = settings.region
        if settings.endpoint:
            config["endpoint"] = config["aws_endpoint_url_s3"] = settings.endpoint
        try:
            try:
                return self._new_store(config)
            except UnknownConfigurationKeyError:
                # An older driver, which does not read that one from the environment either.
                config.pop("aws_endpoint_url_s3", None)
                return self._new_store(config)
        except _FAILED as error:
            raise Unavailable(self.what, describe(error)) from None

    def _new_store(self, config: dict[str, str]) -> S3Store:
        settings = self.settings
        return S3Store(
            settings.bucket,
            config=config,  # type: ignore[arg-type]
            client_options={
                "allow_http": settings.allow_http,
                "connect_timeout": f"{settings.connect_us}us",
                "timeout": f"{settings.timeout_us}us",
            },
            retry_config={"max_retries": 0},  # attempts are counted here
        )
