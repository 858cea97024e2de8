"""Signatures: URLs that only whoever has a key can make, and that end when they say. Pure.

    /img/{spec}/{url}?expires=1735689600&sig=...

What is signed is the specification, the URL and the end, as they are once the path's percent
encoding is undone. Without signatures whoever reaches the service can have it process any
specification of any image.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

PREFIX: Final = "/img/"
_FORM: Final = b"sluicegate-images-1"  # another form of what is signed would have another name


def signature_of(key: str, spec: str, url: str, expires_s: int) -> str:
    """The signature; `expires_s` is in seconds since the epoch, 0 is never."""
    parts = (_FORM, spec.encode(), url.encode(), b"%d" % expires_s)
    text = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    digest = hmac.digest(key.encode(), text, "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def signed_path(key: str, spec: str, url: str, expires_s: int = 0) -> str:
    """The path and the query of an image, signed."""
    path = path_of(spec, url)
    end = f"expires={expires_s}&" if expires_s else ""
    return f"{path}?{end}sig={signature_of(key, spec, url, expires_s)}"


def path_of(spec: str, url: str) -> str:
    """The path of an image; its URL is one segment, so its own query is not taken for ours."""
    return f"{PREFIX}{quote(spec, safe=':,=')}/{quote(url, safe='')}"


def refuse_signature(
    keys: Iterable[str], spec: str, url: str, expires_s: int, signature: str, now_us: int
) -> str:
    """Why a request is not let in; empty if it is."""
    good = False
    for key in keys:  # all of them: a wrong one takes as long as a right one
        wanted = signature_of(key, spec, url, expires_s)
        good |= hmac.compare_digest(wanted.encode(), signature.encode())
    if not good:
        return "the signature is missing or wrong"
    if expires_s and now_us >= expires_s * 1_000_000:
        return "the signature has expired"
    return ""
