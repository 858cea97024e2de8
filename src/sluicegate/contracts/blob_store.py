"""Blob store: named bytes, written whole or not at all.

What is written once under a name that says what it is (a digest, a number) needs no lock: `put`
with `if_absent` lets one writer win and refuses the others. What changes under its name is written
with the tag of what was read, and the second writer gets a `Conflict`.

The methods wait in the thread that asks. They raise `Unavailable` where the store does not answer
and `Conflict` where somebody else was faster; a put that raised `Unavailable` may have happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

NAME_CHARS_MAX: Final = 512
NAMES_MAX: Final = 10_000


class Blob(NamedTuple):
    """The bytes under a name, and the tag by which they can be replaced.

    `digest` is the SHA-256, in hex, of the bytes as they were read just now, if the store has taken
    it anyway: who verifies them need not take it again. Empty where it has not.
    """

    data: bytes
    tag: str
    digest: str = ""


class BlobStore(Protocol):
    """Names are segments of `A-Z a-z 0-9 _ . = -` between slashes; none begins with a dot."""

    def get(self, name: str, *, bytes_max: int) -> Blob | None:
        """Return the blob, or None. More than `bytes_max` is a `BadValue`, unread."""
        ...

    def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_tag: str | None = None
    ) -> str:
        """Write whole; the new tag. Durable, and visible to every reader, when it returns.

        With `if_absent`, a `Conflict` if something is there; with `if_tag`, unless it has that tag.
        """
        ...

    def names(self, prefix: str = "", *, names_max: int = NAMES_MAX) -> Sequence[str]:
        """The names that begin so, in order; more than `names_max` are a `BadValue`."""
        ...

    def delete(self, name: str) -> None:
        """Forget what is there; nothing there is no error."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...
