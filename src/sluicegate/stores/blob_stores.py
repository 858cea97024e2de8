"""Blob stores: which store a URL means. A driver is imported only when its store is asked for."""

from __future__ import annotations

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.errors import BadValue

MEMORY_SCHEME = "memory:"
FILES_SCHEME = "files:"
S3_SCHEME = "s3://"


def open_blobs(url: str) -> BlobStore:
    """Return the store of `files:DIR`, `s3://bucket/prefix` or `memory:`.

    Nothing is written or connected to before it is needed; `MissingPackage` says what is missing.
    """
    if url.startswith(FILES_SCHEME):
        from sluicegate.stores.blobs import files_url  # noqa: PLC0415 - only if it is asked for
        from sluicegate.stores.blobs.files import FileBlobs  # noqa: PLC0415 - likewise

        return FileBlobs(files_url.parse_url(url))
    if url.startswith(S3_SCHEME):
        from sluicegate.stores.blobs import s3_url  # noqa: PLC0415 - likewise

        settings = s3_url.parse_url(url)  # a wrong URL is told before a missing package
        from sluicegate.stores.blobs.s3 import S3Blobs  # noqa: PLC0415 - likewise

        return S3Blobs(settings)
    if url.startswith(MEMORY_SCHEME):
        from sluicegate.stores.blobs.memory import open_memory  # noqa: PLC0415 - likewise

        return open_memory(url)
    shown = url.partition(":")[0] + ":..."
    raise BadValue("blob_store.url", shown, "give files:DIR, s3://bucket/prefix or memory:")
