"""S3 errors: what an S3 server, or the way to it, reported, in words that hold no secret.

The text of a driver's error quotes the server's answer, and that may quote the request: key ids,
what was signed, tokens. So nothing of it is passed on but a status, a code, and what is known here.
"""

from __future__ import annotations

import re
from typing import Final

from sluicegate.stores.blobs.s3_url import ENVIRONMENT

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
# On the way to credentials, where the machine should have them: before any server is asked.
_NO_CREDENTIALS: Final = (
    "/latest/api/token",
    "/latest/meta-data",
    "169.254.170.2",
    "Failed to read EKS token file",
    "Failed to read token file",
    "MissingAccessKeyId",
    "MissingSecretAccessKey",
)
# What stands in a driver's error, and what it means; the first that is found is told.
_KNOWN: Final = (
    ("ConnectionRefused", "the connection was refused"),
    ("dns error", "its host has no address"),
    ("InvalidCertificate", "its certificate is not trusted"),
    ("InvalidContentType", "it does not speak TLS; for http:// say allow_http=1"),
    ("BadScheme", "its endpoint is of http, from the environment; say allow_http=1"),
    ("TimedOut", "it did not answer in time"),
    ("timed out", "it did not answer in time"),
    ("IncompleteMessage", "the connection ended in the middle"),
    ("UnexpectedEof", "the connection ended in the middle"),
    ("ConnectionReset", "the connection ended in the middle"),
    ("kind: Connect", "there is no connection to it"),
)
_REMEDIES: Final = {
    "NoSuchBucket": "make the bucket, or name another",
    "AccessDenied": "grant GetObject, PutObject, DeleteObject and ListBucket; without the last, "
    "what is not there is denied too",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY and the region",
    "ExpiredToken": "renew AWS_SESSION_TOKEN",
    "NotImplemented": "this server lacks what is needed",
    "PermanentRedirect": "name the bucket's region",
}


def is_missing(error: Exception) -> bool:
    """Whether the server itself says that nothing is there: of a bucket or a path, a proxy may."""
    return _status(error) == 404 and _code(error) == "NoSuchKey"


def is_refusal(error: Exception) -> bool:
    """Return whether the server refused because a condition did not hold, or another was faster."""
    return _status(error) in {409, 412}


def may_pass(error: Exception) -> bool:
    """Return whether the same request may go better soon: there was no answer, or a hasty one."""
    return _status(error) in {0, 429, 500, 502, 503, 504}


def is_answered(error: Exception) -> bool:
    """Return whether the server answered at all."""
    return _status(error) != 0


def describe(error: Exception) -> str:
    """Return what to tell of an error."""
    text = str(error)
    if any(mark in text for mark in _NO_CREDENTIALS):
        return f"there are no credentials; {ENVIRONMENT}"
    if status := _status(error):
        code = _code(error)
        remedy = _REMEDIES.get(code, "")
        return f"{status} {code}".rstrip() + (f"; {remedy}" if remedy else "")
    for mark, meaning in _KNOWN:
        if mark in text:
            return meaning
    return f"the driver gave up ({type(error).__name__})"


def _status(error: Exception) -> int:
    """Return the status of the server's answer; 0 if there was none."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def _code(error: Exception) -> str:
    """Return the code in the server's answer; empty if it gave none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""
