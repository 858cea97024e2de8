"""sluicegate.v1.KeyValues as methods: bytes to what is asked, an answer to bytes.

What a call claims stands in its metadata (`doors/claims.py`), and its `grpc-timeout` is the
deadline. A refusal is an error here, told by `call.status_of` and `call.metadata_of`. Get and
GetEach are answered at once where the dispatcher can; the others always wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.key_values import CallContext, KeyValues, Row
from sluicegate.doors.claims import CRITICALITY, STRONG, criticality_of, strong_of
from sluicegate.doors.grpc.call import Told, UnaryTold
from sluicegate.wire.key_values_messages import (
    KV_BOUNDS,
    CommitAsk,
    KvBounds,
    PartAsk,
    PlaceAsk,
    PlacesAsk,
    ScanAsk,
    UploadAsk,
    WalkAsk,
    WriteAsk,
    WriteIfAsk,
    found_bytes,
    found_each_bytes,
    number_bytes,
    rows_bytes,
    tried_bytes,
    upload_bytes,
    uploads_bytes,
    walked_bytes,
)

SERVICE: Final = "/sluicegate.v1.KeyValues/"


@final
class KeyValuesServicer:
    """Answers the questions of the key-value service."""

    __slots__ = ("bounds", "clock", "service")

    def __init__(self, service: KeyValues, clock: Clock, bounds: KvBounds = KV_BOUNDS) -> None:
        self.service = service
        self.clock = clock
        self.bounds = bounds

    @property
    def told(self) -> Mapping[str, UnaryTold]:
        """The methods for `Methods.told`."""
        return {
            SERVICE + "Get": self.get,
            SERVICE + "GetEach": self.get_each,
            SERVICE + "Scan": self.scan,
            SERVICE + "Walk": self.walk,
            SERVICE + "Write": self.write,
            SERVICE + "WriteIf": self.write_if,
            SERVICE + "Remove": self.remove,
            SERVICE + "Expire": self.expire,
            SERVICE + "BeginUpload": self.begin_upload,
            SERVICE + "UploadPart": self.upload_part,
            SERVICE + "CommitUpload": self.commit_upload,
            SERVICE + "AbandonUpload": self.abandon_upload,
            SERVICE + "ShowUpload": self.show_upload,
            SERVICE + "ListUploads": self.list_uploads,
        }

    def _call(self, by: Identity, told: Told) -> CallContext:
        now_us = self.clock.now_us()
        return CallContext(
            by,
            criticality=criticality_of(told.values(CRITICALITY)),
            deadline_us=now_us + told.left_us if told.left_us >= 0 else None,
            arrived_us=now_us - told.waited_us,
            strong=strong_of(told.values(STRONG)),
        )

    # Rows.

    def get(self, message: bytes, by: Identity, told: Told) -> MaybeAwaitable[bytes]:
        """GetRequest to GetResponse."""
        asked = PlaceAsk(message)
        found = self.service.get(asked.table, asked.partition, asked.sort, self._call(by, told))
        if found is None or isinstance(found, Row):
            return found_bytes(found, self.clock.now_us())
        return self._found_later(found)

    async def _found_later(self, found: Awaitable[Row | None]) -> bytes:
        return found_bytes(await found, self.clock.now_us())

    def get_each(self, message: bytes, by: Identity, told: Told) -> MaybeAwaitable[bytes]:
        """GetEachRequest to GetEachResponse."""
        asked = PlacesAsk(message, self.bounds)
        found = self.service.get_each(asked.table, asked.places, self._call(by, told))
        if isinstance(found, Sequence):
            return found_each_bytes(found, self.clock.now_us())
        return self._found_each_later(found)

    async def _found_each_later(self, found: Awaitable[Sequence[Row | None]]) -> bytes:
        return found_each_bytes(await found, self.clock.now_us())

    async def scan(self, message: bytes, by: Identity, told: Told) -> bytes:
        """ScanRequest to ScanResponse."""
        asked = ScanAsk(message, self.bounds)
        rows = await self.service.scan(
            asked.table, asked.partition, asked.span, self._call(by, told), asked.token
        )
        return rows_bytes(rows, self.clock.now_us())

    async def walk(self, message: bytes, by: Identity, told: Told) -> bytes:
        """WalkRequest to WalkResponse."""
        asked = WalkAsk(message, self.bounds)
        call = self._call(by, told)
        return walked_bytes(await self.service.walk(asked.table, asked.after, asked.rows_max, call))

    async def write(self, message: bytes, by: Identity, told: Told) -> bytes:
        """WriteRequest to WriteResponse."""
        asked = WriteAsk(message, self.bounds)
        await self.service.write(asked.table, asked.writes, self._call(by, told))
        return b""

    async def write_if(self, message: bytes, by: Identity, told: Told) -> bytes:
        """WriteIfRequest to WriteIfResponse."""
        asked = WriteIfAsk(message, self.bounds)
        call = self._call(by, told)
        tried = await self.service.write_if(asked.table, asked.write, asked.condition, call)
        return tried_bytes(tried, self.clock.now_us())

    async def remove(self, message: bytes, by: Identity, told: Told) -> bytes:
        """RemoveRequest to RemoveResponse."""
        asked = PlacesAsk(message, self.bounds)
        call = self._call(by, told)
        return number_bytes(await self.service.remove(asked.table, asked.places, call))

    async def expire(self, message: bytes, by: Identity, told: Told) -> bytes:
        """ExpireRequest to ExpireResponse."""
        asked = PlaceAsk(message, expires=True)
        call = self._call(by, told)
        there = await self.service.expire(
            asked.table, asked.partition, asked.sort, asked.ttl_us, call
        )
        return number_bytes(int(there))

    # Uploads.

    async def begin_upload(self, message: bytes, by: Identity, told: Told) -> bytes:
        """BeginUploadRequest to Upload."""
        asked = UploadAsk(message, 3)
        uploads = self.service.uploads
        return upload_bytes(
            await uploads.begin(asked.table, asked.name, asked.mode, self._call(by, told))
        )

    async def upload_part(self, message: bytes, by: Identity, told: Told) -> bytes:
        """UploadPartRequest to Upload."""
        asked = PartAsk(message)
        call = self._call(by, told)
        uploads = self.service.uploads
        return upload_bytes(
            await uploads.part(
                asked.table, asked.name, asked.number, asked.rows, asked.sha256, call
            )
        )

    async def commit_upload(self, message: bytes, by: Identity, told: Told) -> bytes:
        """CommitUploadRequest to Upload."""
        asked = CommitAsk(message)
        call = self._call(by, told)
        uploads = self.service.uploads
        return upload_bytes(
            await uploads.commit(
                asked.table, asked.name, asked.parts, asked.rows, asked.sha256, call
            )
        )

    async def abandon_upload(self, message: bytes, by: Identity, told: Told) -> bytes:
        """AbandonUploadRequest to Upload."""
        asked = UploadAsk(message, 2)
        uploads = self.service.uploads
        return upload_bytes(await uploads.abandon(asked.table, asked.name, self._call(by, told)))

    async def show_upload(self, message: bytes, by: Identity, told: Told) -> bytes:
        """ShowUploadRequest to Upload."""
        asked = UploadAsk(message, 2)
        uploads = self.service.uploads
        return upload_bytes(await uploads.show(asked.table, asked.name, self._call(by, told)))

    async def list_uploads(self, message: bytes, by: Identity, told: Told) -> bytes:
        """ListUploadsRequest to ListUploadsResponse."""
        asked = UploadAsk(message, 1)
        return uploads_bytes(await self.service.uploads.all(asked.table, self._call(by, told)))
