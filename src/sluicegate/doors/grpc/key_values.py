"""sluicegate.v1.KeyValues as methods: bytes to what is request, an answer to bytes.

What a call claims stands in its metadata (`doors/claims.py`), and its `grpc-timeout` is the
deadline. A refusal is an error here, told by `call.status_of` and `call.metadata_of`. Get and
GetEach are answered at once where the dispatcher can; the others always wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.access import Identity, TableGrant
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.key_values import CallContext, KeyValues, Row
from sluicegate.doors.claims import CRITICALITY, STRONG, criticality_of, strong_of
from sluicegate.doors.grpc.methods import CallMetadata, MetadataMethod
from sluicegate.wire.key_values_messages import (
    KV_BOUNDS,
    CommitUploadRequest,
    KvBounds,
    PlaceRequest,
    PlacesRequest,
    ScanRequest,
    UploadPartRequest,
    UploadRequest,
    WalkRequest,
    WriteIfRequest,
    WriteRequest,
    encode_get_each_response,
    encode_get_response,
    encode_number,
    encode_scan_response,
    encode_upload,
    encode_uploads,
    encode_walk_response,
    encode_write_if_response,
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
    def with_metadata(self) -> Mapping[str, MetadataMethod]:
        """The methods for `Methods.with_metadata`."""
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

    @property
    def grants(self) -> Mapping[str, TableGrant]:
        """What the methods take, on the table that they name, for `Methods.grants`."""
        read, write, bulk = TableGrant.READ, TableGrant.WRITE, TableGrant.BULK
        return {
            SERVICE + "Get": read,
            SERVICE + "GetEach": read,
            SERVICE + "Scan": read,
            SERVICE + "Walk": read,
            SERVICE + "Write": write,
            SERVICE + "WriteIf": write,
            SERVICE + "Remove": write,
            SERVICE + "Expire": write,
            SERVICE + "BeginUpload": bulk,
            SERVICE + "UploadPart": bulk,
            SERVICE + "CommitUpload": bulk,
            SERVICE + "AbandonUpload": bulk,
            SERVICE + "ShowUpload": bulk,
            SERVICE + "ListUploads": bulk,
        }

    def _call(self, by: Identity, metadata: CallMetadata) -> CallContext:
        now_us = self.clock.now_us()
        return CallContext(
            by,
            criticality=criticality_of(metadata.values(CRITICALITY)),
            deadline_us=now_us + metadata.left_us if metadata.left_us >= 0 else None,
            arrived_us=now_us - metadata.waited_us,
            strong=strong_of(metadata.values(STRONG)),
        )

    # Rows.

    def get(self, message: bytes, by: Identity, metadata: CallMetadata) -> MaybeAwaitable[bytes]:
        """GetRequest to GetResponse."""
        request = PlaceRequest(message)
        row = self.service.get(
            request.table, request.partition, request.sort, self._call(by, metadata)
        )
        if row is None or isinstance(row, Row):
            return encode_get_response(row, self.clock.now_us())
        return self._found_later(row)

    async def _found_later(self, row: Awaitable[Row | None]) -> bytes:
        return encode_get_response(await row, self.clock.now_us())

    def get_each(
        self, message: bytes, by: Identity, metadata: CallMetadata
    ) -> MaybeAwaitable[bytes]:
        """GetEachRequest to GetEachResponse."""
        request = PlacesRequest(message, self.bounds)
        row = self.service.get_each(request.table, request.places, self._call(by, metadata))
        if isinstance(row, Sequence):
            return encode_get_each_response(row, self.clock.now_us())
        return self._found_each_later(row)

    async def _found_each_later(self, row: Awaitable[Sequence[Row | None]]) -> bytes:
        return encode_get_each_response(await row, self.clock.now_us())

    async def scan(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """ScanRequest to ScanResponse."""
        request = ScanRequest(message, self.bounds)
        rows = await self.service.scan(
            request.table, request.partition, request.span, self._call(by, metadata), request.token
        )
        return encode_scan_response(rows, self.clock.now_us())

    async def walk(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """WalkRequest to WalkResponse."""
        request = WalkRequest(message, self.bounds)
        call = self._call(by, metadata)
        return encode_walk_response(
            await self.service.walk(request.table, request.after, request.rows_max, call)
        )

    async def write(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """WriteRequest to WriteResponse."""
        request = WriteRequest(message, self.bounds)
        await self.service.write(request.table, request.writes, self._call(by, metadata))
        return b""

    async def write_if(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """WriteIfRequest to WriteIfResponse."""
        request = WriteIfRequest(message, self.bounds)
        call = self._call(by, metadata)
        result = await self.service.write_if(request.table, request.write, request.condition, call)
        return encode_write_if_response(result, self.clock.now_us())

    async def remove(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """RemoveRequest to RemoveResponse."""
        request = PlacesRequest(message, self.bounds)
        call = self._call(by, metadata)
        return encode_number(await self.service.remove(request.table, request.places, call))

    async def expire(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """ExpireRequest to ExpireResponse."""
        request = PlaceRequest(message, expires=True)
        call = self._call(by, metadata)
        there = await self.service.expire(
            request.table, request.partition, request.sort, request.ttl_us, call
        )
        return encode_number(int(there))

    # Uploads.

    async def begin_upload(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """BeginUploadRequest to Upload."""
        request = UploadRequest(message, 3)
        uploads = self.service.uploads
        return encode_upload(
            await uploads.begin(request.table, request.name, request.mode, self._call(by, metadata))
        )

    async def upload_part(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """UploadPartRequest to Upload."""
        request = UploadPartRequest(message)
        call = self._call(by, metadata)
        uploads = self.service.uploads
        return encode_upload(
            await uploads.part(
                request.table, request.name, request.number, request.rows, request.sha256, call
            )
        )

    async def commit_upload(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """CommitUploadRequest to Upload."""
        request = CommitUploadRequest(message)
        call = self._call(by, metadata)
        uploads = self.service.uploads
        return encode_upload(
            await uploads.commit(
                request.table, request.name, request.parts, request.rows, request.sha256, call
            )
        )

    async def abandon_upload(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """AbandonUploadRequest to Upload."""
        request = UploadRequest(message, 2)
        uploads = self.service.uploads
        return encode_upload(
            await uploads.abandon(request.table, request.name, self._call(by, metadata))
        )

    async def show_upload(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """ShowUploadRequest to Upload."""
        request = UploadRequest(message, 2)
        uploads = self.service.uploads
        return encode_upload(
            await uploads.show(request.table, request.name, self._call(by, metadata))
        )

    async def list_uploads(self, message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
        """ListUploadsRequest to ListUploadsResponse."""
        request = UploadRequest(message, 1)
        return encode_uploads(
            await self.service.uploads.all(request.table, self._call(by, metadata))
        )
