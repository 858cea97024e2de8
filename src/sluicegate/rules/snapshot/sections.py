"""Sections: the frame of what is sent, a list of named parts, each compressed by itself.

    frame   = word:8  version:2  sections:4  section...  data...
    section = name:8  needed:1  packed:8  unpacked:8

A newer program may add sections. One that is marked as needed is refused by a program that does not
know it, any other is passed over; a change that neither can hold is a new version of the form.

What packing does not make shorter is sent as it is, and has both its sizes the same.

How much is unpacked is said before any of it is, and never more is made than that.

Damaged: bytes that are not what they should be, or are newer than this program.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import MissingPackage, SluicegateError

FORM_VERSION: Final = 1
SECTIONS_MAX: Final = 1 << 20
BYTES_MAX: Final = 2 << 30
WINDOW_MIN: Final = 1 << 20
LEVEL: Final = 9

_HEAD: Final = struct.Struct("<8sHI")
_SECTION: Final = struct.Struct("<8sBQQ")
_UPGRADE: Final = "upgrade this node"


class SnapshotSection(NamedTuple):
    """A part: its name, its bytes, and whether a reader must know what it is."""

    name: str
    data: bytes
    needed: bool = True
    like: bytes = b""  # what both sides have, and the data is much like


class PackedSection(NamedTuple):
    """A part as it came."""

    name: str
    data: bytes | memoryview
    unpacked: int

    def open(self, like: bytes = b"") -> bytes:
        """The bytes of it."""
        if not self.unpacked:
            if len(self.data):
                raise DamagedSnapshot(f"its part {self.name!r} says that it is empty, and is not")
            return b""
        if len(self.data) == self.unpacked:
            return bytes(self.data)
        return _decompress(self, like)


def frame(word: bytes, sections: Sequence[SnapshotSection]) -> bytes:
    """All sections as one."""
    zstd = _zstd()
    plain = zstd.ZstdCompressor(level=LEVEL, write_content_size=True)
    heads: list[bytes] = [_HEAD.pack(word, FORM_VERSION, len(sections))]
    packed: list[bytes] = []
    for section in sections:
        data = section.data
        if not data:
            small = b""
        elif section.like:
            small = _compressor(zstd, section.like, len(data)).compress(data)
        else:
            small = plain.compress(data)
        if len(small) >= len(data):
            small = data  # as it is: what is as long as it was is not packed
        name = section.name.encode("ascii")
        heads.append(_SECTION.pack(name, section.needed, len(small), len(data)))
        packed.append(small)
    return b"".join([*heads, *packed])


def read_frame(
    word: bytes, data: bytes, labels: Sequence[str], *, bytes_max: int = BYTES_MAX
) -> list[PackedSection]:
    """The sections of a frame, those that are known, in order; none of them is unpacked yet."""
    if len(data) < _HEAD.size:
        raise DamagedSnapshot("it is cut off")
    began, version, count = _HEAD.unpack_from(data)
    if began != word:
        raise DamagedSnapshot(
            "it is something else", "see that the name leads to what was published"
        )
    if version != FORM_VERSION:
        raise DamagedSnapshot(
            f"it is of form {version}, and this program knows {FORM_VERSION}", _UPGRADE
        )
    at = _HEAD.size + count * _SECTION.size
    if count > SECTIONS_MAX or len(data) < at:
        raise DamagedSnapshot("it is cut off")
    whole = memoryview(data)
    sections: list[PackedSection] = []
    total = 0
    for place in range(count):
        name, needed, packed, unpacked = _SECTION.unpack_from(
            data, _HEAD.size + place * _SECTION.size
        )
        if packed > len(data) - at:
            raise DamagedSnapshot("it is cut off")
        label = name.rstrip(b"\0").decode("ascii", "backslashreplace")
        if label in labels:
            total += unpacked
            sections.append(PackedSection(label, whole[at : at + packed], unpacked))
        elif needed:
            raise DamagedSnapshot(
                f"it has a part {label!r} that this program does not know", _UPGRADE
            )
        at += packed
    if at != len(data):
        raise DamagedSnapshot("there is more of it than it says")
    if total > bytes_max:
        raise DamagedSnapshot(
            f"it would unpack to {total:,} bytes",
            f"at most {bytes_max:,} are taken (bytes_max); raise that if it is meant to be so",
        )
    return sections


def _decompress(part: PackedSection, like: bytes) -> bytes:
    zstd = _zstd()
    try:
        frame = zstd.get_frame_parameters(part.data)
        if frame.content_size != part.unpacked:
            raise DamagedSnapshot(f"its part {part.name!r} is not of the size it says")
        if frame.window_size > max(4 * (part.unpacked + len(like)), WINDOW_MIN):
            raise DamagedSnapshot(f"its part {part.name!r} wants more memory than it is worth")
        dictionary = _like(zstd, like) if like else None
        opener = zstd.ZstdDecompressor(dict_data=dictionary, max_window_size=1 << 31)
        data: bytes = opener.decompress(
            part.data, max_output_size=part.unpacked, allow_extra_data=False
        )
    except zstd.ZstdError as error:
        raise DamagedSnapshot(f"its part {part.name!r} cannot be unpacked ({error})") from None
    if len(data) != part.unpacked:
        raise DamagedSnapshot(f"its part {part.name!r} is not of the size it says")
    return data


def _compressor(zstd: Any, like: bytes, size: int) -> Any:
    """One that sees what is like before what it compresses."""
    bits = min(max((len(like) + size).bit_length(), 10), 30)
    settings = zstd.ZstdCompressionParameters.from_level(
        LEVEL, window_log=bits, enable_ldm=bits > 20, write_content_size=1
    )
    return zstd.ZstdCompressor(dict_data=_like(zstd, like), compression_params=settings)


def _like(zstd: Any, like: bytes) -> Any:
    return zstd.ZstdCompressionDict(like, dict_type=zstd.DICT_TYPE_RAWCONTENT)


def _zstd() -> Any:
    try:
        import zstandard  # noqa: PLC0415 - only who sends or takes snapshots needs it
    except ModuleNotFoundError:
        raise MissingPackage("zstandard", "rulebook") from None
    return zstandard


@final
class DamagedSnapshot(SluicegateError):  # noqa: N818 - it names the thing, not the class
    """A snapshot or a delta that cannot be used: what is wrong with it, and what to do."""

    def __init__(self, detail: str, remedy: str = "fetch it again") -> None:
        super().__init__(f"the snapshot cannot be used: {detail}; {remedy}")
        self.detail = detail
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[DamagedSnapshot], tuple[str, str]]:
        return DamagedSnapshot, (self.detail, self.remedy)
