"""Capture format: how a capture stands in a file, and how a torn or damaged one is read.

A file is a *segment*. It begins with what it says of itself, as JSON, in a frame that all versions
have: "sgcapture" and a NUL, version u16, length u32, JSON, digest. Then come blocks:

    A7 "HC" 1E | kind u8 | number u32 | bytes u32 | bytes unpacked u32 | digest | zlib

The digest is BLAKE2b under the segment's salt, over all of the block but its mark. So what follows
damage is found again by its mark, a block of another file is not taken for one of this, and numbers
tell which are missing. A block of an unknown kind is passed over. Bytes in, bytes out: nothing here
opens a file. Numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import compress, decompressobj
from zlib import error as ZlibError  # noqa: N812 - it is a class

from sluicegate.contracts.errors import BadValue

VERSION: Final = 1
MAGIC: Final = b"sgcapture\0"
MARK: Final = b"\xa7HC\x1e"
SALT_BYTES: Final = 16
REQUESTS: Final = 1  # kinds of blocks
END: Final = 2
PACKED_BYTES_MAX: Final = 64 << 20
UNPACKED_BYTES_MAX: Final = 64 << 20
HEAD_BYTES_MAX: Final = 1 << 20
_LEVEL: Final = 1  # what more costs in time it does not gain in space
_DIGEST_BYTES: Final = 8
_BEGIN: Final = struct.Struct("<10sHI")
_FRAME: Final = struct.Struct("<4sBIII8s")
_SIGNED: Final = struct.Struct("<BIII")
FRAME_BYTES: Final = _FRAME.size


class Head(NamedTuple):
    """What a segment says of itself. Without a `key` nothing in it is redacted."""

    salt: bytes
    began_us: int
    share: int
    key: str  # the fingerprint of the key
    mesh_keys: tuple[str, ...]


class Block(NamedTuple):
    """One block, or damage: then `kind` is 0, and `data` is empty."""

    kind: int
    number: int
    data: bytes
    begin: int
    end: int


def head_bytes(head: Head) -> bytes:
    """The first bytes of a segment."""
    fields = {
        "salt": head.salt.hex(),
        "began_us": head.began_us,
        "share": head.share,
        "key": head.key,
        "mesh_keys": list(head.mesh_keys),
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    begin = _BEGIN.pack(MAGIC, VERSION, len(text)) + text
    return begin + _digest(b"", begin)


def read_head(data: bytes, name: str) -> tuple[Head, int] | str:
    """What a segment says of itself and where its blocks begin, or what is wrong with it.

    `BadValue` if a newer program wrote it.
    """
    if len(data) < _BEGIN.size:
        return "its head is not whole"
    magic, version, length = _BEGIN.unpack_from(data)
    if magic != MAGIC:
        return "it does not begin as a capture does"
    end = _BEGIN.size + length
    if length > HEAD_BYTES_MAX or len(data) < end + _DIGEST_BYTES:
        return "its head is not whole"
    if data[end : end + _DIGEST_BYTES] != _digest(b"", data[:end]):
        return "its head is damaged"
    if version != VERSION:
        remedy = f"upgrade sluicegate: this one reads captures of version {VERSION}"
        raise BadValue("capture", f"{name} (version {version})", remedy)
    try:
        fields = json.loads(data[_BEGIN.size : end])
        head = Head(
            bytes.fromhex(fields["salt"]),
            int(fields["began_us"]),
            int(fields["share"]),
            str(fields["key"]),
            tuple([str(key) for key in fields["mesh_keys"]]),
        )
    except (ValueError, KeyError, TypeError):
        return "its head cannot be understood"
    return head, end + _DIGEST_BYTES


def block_bytes(salt: bytes, kind: int, number: int, data: bytes) -> bytes:
    """A block as it stands in a file."""
    packed = compress(data, _LEVEL)
    signed = _SIGNED.pack(kind, number, len(packed), len(data))
    digest = _digest(salt, signed + packed)
    return _FRAME.pack(MARK, kind, number, len(packed), len(data), digest) + packed


def blocks(data: bytes, at: int, salt: bytes) -> Iterator[Block]:
    """The blocks of a segment from here on, and each stretch that is none, once."""
    damaged_at = -1
    while at < len(data):
        found = _block_at(data, at, salt)
        if found is None:
            if damaged_at < 0:
                damaged_at = at
            at = data.find(MARK, at + 1)
            if at < 0:
                break
        else:
            if damaged_at >= 0:
                yield Block(0, 0, b"", damaged_at, at)
                damaged_at = -1
            yield found
            at = found.end
    if damaged_at >= 0:
        yield Block(0, 0, b"", damaged_at, len(data))


def _block_at(data: bytes, at: int, salt: bytes) -> Block | None:
    if len(data) - at < FRAME_BYTES:
        return None
    mark, kind, number, packed_bytes, unpacked_bytes, digest = _FRAME.unpack_from(data, at)
    begin, end = at + FRAME_BYTES, at + FRAME_BYTES + packed_bytes
    too_large = packed_bytes > PACKED_BYTES_MAX or unpacked_bytes > UNPACKED_BYTES_MAX
    if mark != MARK or kind == 0 or too_large or end > len(data):
        return None
    packed = data[begin:end]
    if digest != _digest(salt, _SIGNED.pack(kind, number, packed_bytes, unpacked_bytes) + packed):
        return None
    unpacking = decompressobj()
    try:
        unpacked = unpacking.decompress(packed, unpacked_bytes + 1)
    except ZlibError:
        return None
    if len(unpacked) != unpacked_bytes:
        return None
    return Block(kind, number, unpacked, at, end)


def _digest(salt: bytes, data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES, key=salt).digest()
