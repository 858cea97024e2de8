"""Failures: for how long each kind is remembered, and the status that it has. One table.

What is a property of bytes holds for long: the same bytes fail the same way. What an origin answers
in place of an image holds for minutes, and what is a state of it, or of ours, for seconds, so that
whoever asks again soon is answered at once and an origin that is back is found soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.image import ImageErrorKind


class FailureKind(NamedTuple):
    """A row: its status, and whether it is of a state that passes, not of an image."""

    status: int
    passing: bool = False


@dataclass(frozen=True, kw_only=True)
class FailureLifetimes:
    """For how long a failure is remembered, in seconds."""

    content_s: float = 7 * 86_400.0  # the bytes of an original cannot be made into this
    corrupt_s: float = 3_600.0  # the same, but the bytes may be those of a download cut short
    missing_s: float = 300.0  # the origin answers with no image, or must not be asked
    origin_s: float = 10.0  # the origin does not answer as it should
    process_s: float = 60.0  # a worker gave up: too slow, too much memory


# A kind that is not named is of the content.
KINDS: Final[Mapping[str, FailureKind]] = {
    ImageErrorKind.NOT_FOUND: FailureKind(404),
    ImageErrorKind.FORBIDDEN: FailureKind(403),
    ImageErrorKind.BLOCKED: FailureKind(451),
    ImageErrorKind.ORIGIN_DOWN: FailureKind(502, passing=True),
    ImageErrorKind.TIMEOUT: FailureKind(504, passing=True),
    ImageErrorKind.NO_MEMORY: FailureKind(503, passing=True),
}
_OF_CONTENT: Final = FailureKind(422)
# What says as much of our bounds as of an image: with others it is found out anew.
OF_BOUNDS: Final = frozenset(
    (ImageErrorKind.TOO_LARGE, ImageErrorKind.TOO_SMALL, ImageErrorKind.FORBIDDEN)
)


# These do not depend on the size or format that is requested: one verdict for each original.
OF_ORIGINAL: Final = frozenset(
    (ImageErrorKind.CORRUPT, ImageErrorKind.WRONG_TYPE, ImageErrorKind.TOO_SMALL)
)


@final
class NoImageError(SluicegateError):
    """There is no image: its kind, what was observed, and until when nobody tries again."""

    def __init__(self, kind: str, detail: str, until_us: int) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.until_us = until_us

    def __reduce__(self) -> tuple[type[NoImageError], tuple[str, str, int]]:
        return NoImageError, (self.kind, self.detail, self.until_us)


def kind_of(name: str) -> FailureKind:
    """The row of a kind."""
    return KINDS.get(name, _OF_CONTENT)


def lifetime_us(name: str, lifetimes: FailureLifetimes, *, of_origin: bool) -> int:
    """For how long a failure is remembered.

    What an origin answers may be another thing soon; what bytes are stays.
    """
    passing = kind_of(name).passing
    if of_origin:
        seconds = lifetimes.origin_s if passing else lifetimes.missing_s
    elif passing:
        seconds = lifetimes.process_s
    elif name == ImageErrorKind.CORRUPT:
        seconds = min(lifetimes.corrupt_s, lifetimes.content_s)
    else:
        seconds = lifetimes.content_s
    return int(seconds * 1e6)
