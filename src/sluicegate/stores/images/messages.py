"""Messages: what a service and its image workers say to each other over pipes.

    4 bytes length of the head, 4 of the body, the head in JSON, the body as it is

or, of a job, "shared_bytes" in the head instead of a body: it is in memory that both have.

JSON and not pickle: a worker that a picture has taken over must not be able to run anything in the
service. For the same reason an answer is bounded, and read field by field.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Container
from mmap import mmap
from pathlib import Path
from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.image import (
    ImageErrorKind,
    ImageFailure,
    ImageInfo,
    Original,
    Processed,
)
from sluicegate.contracts.image_spec import ImageSpec
from sluicegate.stores.images.formats import MEDIA_TYPES

LENGTHS: Final = struct.Struct(">II")
HEAD_BYTES_MAX: Final = 1 << 16
COLOURS_BYTES: Final = 4 * 4 * 3
_DETAIL_CHARS_MAX: Final = 500
_MEDIA_TYPES: Final = frozenset(MEDIA_TYPES.values())


class WorkerMessage(NamedTuple):
    """A head of plain values, and bytes."""

    head: dict[str, Any]
    body: bytes = b""


def encode_message(message: WorkerMessage) -> bytes:
    """Return the lengths and the head; the body follows as it is."""
    head = json.dumps(message.head, separators=(",", ":")).encode()
    return LENGTHS.pack(len(head), len(message.body)) + head


def decode_head(head: bytes) -> dict[str, Any]:
    """Return the head; a ValueError if it is none."""
    found = json.loads(head)
    if not isinstance(found, dict):
        raise ValueError("the head is no object")  # noqa: TRY004 - of what was read
    return found


def job_of(original: Original, spec: ImageSpec | None) -> WorkerMessage:
    """Return what asks for a picture, or without a specification for what the original is."""
    wish = {"spec": None if spec is None else spec.canonical()}
    if isinstance(original, Path):
        return WorkerMessage(wish | {"path": str(original)})
    return WorkerMessage(wish, original)


def share_body(job: WorkerMessage, shared: mmap) -> WorkerMessage:
    """Put the body of a job into memory that both have, and return what says so."""
    size = len(job.body)
    shared[:size] = job.body
    return WorkerMessage(job.head | {"shared_bytes": size})


def failed(failure: ImageFailure) -> WorkerMessage:
    """Return the answer that there is no picture, and why."""
    return WorkerMessage({"kind": failure.kind.value, "detail": failure.detail[:_DETAIL_CHARS_MAX]})


def processed(made: Processed) -> WorkerMessage:
    """Return the answer that is a picture."""
    head = {
        "media_type": made.media_type,
        "width": made.width,
        "height": made.height,
        "source_pixels": made.source_pixels,
        "frames": made.frames,
        "pages": made.pages,
    }
    return WorkerMessage(head, made.data)


def described(info: ImageInfo) -> WorkerMessage:
    """Return the answer that says what an original is."""
    return WorkerMessage({**info._asdict(), "colours": info.colours.hex()})


def read_processed(answer: WorkerMessage) -> Processed:
    """Return the picture of an answer, or raise its failure; a ValueError if it is neither."""
    _raise_refusal(answer.head)
    head = answer.head
    return Processed(
        answer.body,
        _one_of(head, "media_type", _MEDIA_TYPES),
        _whole(head, "width"),
        _whole(head, "height"),
        _whole(head, "source_pixels", 1 << 40),
        _whole(head, "frames"),
        _whole(head, "pages"),
    )


def read_described(answer: WorkerMessage) -> ImageInfo:
    """Return what an answer says of an original, or raise its failure; likewise."""
    _raise_refusal(answer.head)
    head = answer.head
    return ImageInfo(
        _one_of(head, "format", MEDIA_TYPES),
        _one_of(head, "media_type", _MEDIA_TYPES),
        _whole(head, "width"),
        _whole(head, "height"),
        _whole(head, "pages"),
        head.get("transparent") is True,
        _whole(head, "perceptual_hash", (1 << 64) - 1),
        _colours(head),
    )


def _colours(head: dict[str, Any]) -> bytes:
    value = head.get("colours")
    if not isinstance(value, str) or len(value) != 2 * COLOURS_BYTES:
        raise ValueError(f"colours is {str(value)[:100]!r}")
    return bytes.fromhex(value)


def _raise_refusal(head: dict[str, Any]) -> None:
    kind, unreadable = head.get("kind"), head.get("unreadable")
    if unreadable is not None:
        raise Unavailable("the original", str(unreadable)[:_DETAIL_CHARS_MAX])
    if kind is not None:
        detail = str(head.get("detail", ""))[:_DETAIL_CHARS_MAX]
        raise ImageFailure(ImageErrorKind(kind), detail)


def _whole(head: dict[str, Any], name: str, most: int = 1 << 31) -> int:
    value = head.get(name)
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}")
    return value


def _one_of(head: dict[str, Any], name: str, known: Container[str]) -> str:
    value = head.get(name)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r}")
    return value


def read_message(read: Callable[[int], bytes]) -> WorkerMessage | None:
    """Read the next message by calls that wait for so many bytes; None at the end."""
    lengths = read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    head_bytes, body_bytes = LENGTHS.unpack(lengths)
    return WorkerMessage(decode_head(read(head_bytes)), read(body_bytes))
