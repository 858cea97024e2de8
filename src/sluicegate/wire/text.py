r"""Text: what callers say of themselves, made of its bytes so that any bytes are a key.

A header's value is bytes, and nobody promises that they are UTF-8. A door that refuses the others
hands callers a way past their limit, wherever a proxy lets traffic pass when the question fails. So
here any bytes are text, no two the same, and all of it is text that UTF-8 can hold: stores, JSON,
logs and labels need no rule of their own.

A byte that is not UTF-8 is written as Python and C write it, `\xff`. All else stays where it is and
what it is, so rules match what stands around such a byte, and can name it. A backslash of the
caller's own that would read like one of ours is written `\x5c`.

Cost: a decoding and one search; 0.1 us for each byte that is not UTF-8. So what has such bytes, and
more than `ODD_BYTES_MAX` in all, is its beginning and a digest of all.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

ODD_BYTES_MAX: Final = 1_024

_BACKSLASH: Final = re.compile(rb"\\(?=x(?:[89a-f][0-9a-f]|5c))")
# A byte that is not UTF-8 as Python decodes it, and as it is written here.
_ODD: Final = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
_DIGEST_BYTES: Final = 16


def text_of(data: bytes) -> str:
    """Return bytes as text, such that no two become the same."""
    try:
        text = data.decode("utf-8")  # named, for the compiler knows this one
        if "\\" not in text or _BACKSLASH.search(data) is None:
            return text
    except UnicodeDecodeError:
        pass
    if len(data) > ODD_BYTES_MAX:
        data = data[:ODD_BYTES_MAX] + b"\xff" + digest_of(data).encode("ascii")
    return _BACKSLASH.sub(rb"\\x5c", data).decode("utf-8", "surrogateescape").translate(_ODD)


def text_again(text: str) -> str:
    """Return what `text_of` makes of a text's bytes, also where it has half of a character."""
    return text_of(text.encode("utf-8", "surrogatepass"))


def word_of(text: str) -> str | bytes:
    """Return what a command says for a text; its bytes where it may have half of a character."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass")


def shorten(text: str, chars_max: int) -> str:
    """Return the text, or its beginning and a digest of all, one character longer than the bound.

    So no text that is short enough looks like one that was not.
    """
    if len(text) <= chars_max:
        return text
    digest = digest_of(text.encode("utf-8", "surrogatepass"))
    return text[: max(chars_max + 1 - len(digest), 0)] + digest


def digest_of(data: bytes) -> str:
    """Return 32 hexadecimal digits that no two data share."""
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
