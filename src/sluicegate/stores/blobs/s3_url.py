"""Which bucket, and how to speak to its server: an `s3://` URL read into frozen settings.

    s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-west-1&allow_http=1

Credentials are never in it: they come from the environment, so that no URL that is logged, listed
or mistyped gives one away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.blobs.names import BLOB_BYTES_MAX, split_name
from sluicegate.stores.urls import (
    Query,
    bounded,
    check_bounds,
    parse_query,
    query_of,
    redacted,
    split_url,
)

SCHEME: Final = "s3://"
URL: Final = "blob_store.url"
PREFIX_CHARS_MAX: Final = 400  # S3 takes 1,024 for all, and a name may have 512
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[a-z0-9-]{0,40}")
_SECRET: Final = re.compile(r"key|secret|token|password|credential", re.IGNORECASE)
ENVIRONMENT: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Everything a blob store in S3 is told; checked when made."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""  # of another server than AWS; empty is what the environment says, or AWS
    region: str = ""  # likewise
    allow_http: bool = False
    connect_us: int = bounded(3_000_000, 1_000, 600_000_000)  # for a connection to stand
    # For one request, until the last byte of its answer
    timeout_us: int = bounded(20_000_000, 10_000, 3_600_000_000)
    # After an answer that says "later"; without an answer at most 2. Of a server that answers so to
    # three of ten requests, 8 leave one request in 50,000 failed.
    retries: int = bounded(8, 0, 100)
    bytes_max: int = bounded(BLOB_BYTES_MAX, 1, 5 << 30)  # of a blob that is written
    # Names in a folder that are looked through for a prefix
    listed_max: int = bounded(100_000, 1, 100_000_000)

    def __post_init__(self) -> None:
        check_bounds(self, "s3")
        if not _BUCKET.fullmatch(self.bucket):
            raise BadValue("s3.bucket", self.bucket, "give a bucket: s3://bucket/prefix")
        if not _REGION.fullmatch(self.region):
            raise BadValue("s3.region", self.region, "give a region as eu-west-1")
        if self.prefix:
            if len(self.prefix) > PREFIX_CHARS_MAX:
                raise BadValue("s3.prefix", self.prefix, f"give at most {PREFIX_CHARS_MAX}")
            split_name(self.prefix)
        self._check_endpoint()

    def _check_endpoint(self) -> None:
        if not self.endpoint:
            return
        shown = redacted(self.endpoint)
        try:
            parts = urlsplit(self.endpoint)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
            raise BadValue("s3.endpoint", shown, "write http://host:port or https://host:port")
        if "@" in parts.netloc:
            raise BadValue("s3.endpoint", shown, f"leave the credentials out; {ENVIRONMENT}")
        if parts.scheme == "http" and not self.allow_http:
            raise BadValue("s3.endpoint", shown, "use https, or say allow_http=1")


# A query's name: the setting, and how its text is read.
_QUERY: Final[Query] = {
    **query_of(S3Settings, "bucket", "prefix"),
}


def parse_url(url: str) -> S3Settings:
    """Return the settings that a URL says; what it does not say has its default."""
    shown = redacted(url)
    if not url.startswith(SCHEME):
        raise BadValue(URL, shown, "begin it with s3://")
    parts, pairs = split_url(url, URL, "s3://bucket/prefix?name=value")
    if "@" in parts.netloc:
        raise BadValue(URL, shown, f"leave the credentials out; {ENVIRONMENT}")
    for name, _ in pairs:
        if name not in _QUERY and _SECRET.search(name):
            raise BadValue(URL, name, f"leave the credentials out; {ENVIRONMENT}")
    if parts.fragment:
        raise BadValue(URL, shown, "leave out what follows the #")
    values = parse_query(pairs, _QUERY, URL)
    return S3Settings(bucket=parts.netloc, prefix=parts.path.strip("/"), **values)  # type: ignore[arg-type]
