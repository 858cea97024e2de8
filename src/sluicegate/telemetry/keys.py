"""Keys: how much of a key may leave the process in a log or a trace.

A key is often a person: an address, an account, an e-mail. A plain hash of one hides nothing, since
all addresses can be hashed and compared in minutes. So a hash here wants a secret; whoever has it
can find a key's lines again, and nobody else can.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from sluicegate.contracts.errors import BadValue

SECRET_BYTES_MIN: Final = 16
KEY_CHARS_MAX: Final = 200
_HASH_BYTES: Final = 8


def key_hasher(secret: bytes) -> Callable[[str], str]:
    """A function from a key to 16 hexadecimal digits that only this secret gives."""
    if len(secret) < SECRET_BYTES_MIN:
        raise BadValue(
            "secret", "..." if secret else secret, f"give at least {SECRET_BYTES_MIN} random bytes"
        )

    def hash_of(key: str) -> str:
        digest = hmac.digest(secret, key.encode("utf-8", "surrogatepass"), "sha256")
        return digest[:_HASH_BYTES].hex()

    return hash_of


def plain_key(key: str) -> str:
    """The key itself, on one line and no longer than 200 characters."""
    shown = key if len(key) <= KEY_CHARS_MAX else f"{key[:KEY_CHARS_MAX]}..."
    return shown if shown.isprintable() else repr(shown)[1:-1]
