"""Digests: how what rules say is named by what it says.

Turns: lets other threads run in the middle of long work.

A thread that computes keeps the interpreter for five milliseconds at a time, and who waits for it
is an event loop with decisions to make. So long work stops by itself every millisecond or so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b, sha256
from threading import Event
from typing import Final

from sluicegate.rules.resources.pages import KIND_BYTES, NO_PAGE, records_start

HASHED_AT_ONCE: Final = 2_047
_NO_DIGEST: Final = sha256(NO_PAGE).digest()


def canonical(value: object) -> bytes:
    """JSON, the same for the same value; a `TypeError` if it holds what JSON has not."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def mark_of(text: bytes) -> bytes:
    """The mark of a kind, from its text."""
    return blake2b(text, digest_size=KIND_BYTES).digest()


def digest_of(data: bytes, start: int = 0) -> bytes:
    """The digest of bytes, made without a pause.

    With more at once `hashlib` lets others run meanwhile, and has to wait for its turn each time:
    by a busy thread that is five milliseconds, for what takes some microseconds.
    """
    digest = sha256()
    view = memoryview(data)
    for at in range(start, len(data), HASHED_AT_ONCE):
        digest.update(view[at : at + HASHED_AT_ONCE])
    return digest.digest()


def page_digest(page: bytes) -> bytes:
    """The digest of the records of a page, without what only helps to find them."""
    return digest_of(page, records_start(page))


def page_digests(pages: Iterable[bytes]) -> list[bytes]:
    """The digests of pages."""
    return [page_digest(page) if page else _NO_DIGEST for page in pages]


PAUSE_S: Final = 0.0001
PAGES_PER_PAUSE: Final = 32
ROWS_PER_PAUSE: Final = 2_000

_NEVER: Final = Event()


def let_others_run() -> None:
    """Let whoever waits have a turn."""
    _NEVER.wait(PAUSE_S)
