"""Failures: for how long each kind is remembered, and the status that it has. One table.

What is a property of the content holds for long: the same bytes fail the same way. What is a
state of an origin, or of ours, holds for seconds, so that whoever asks again soon is answered at
once and an origin that is back is found soon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import SluicegateError


class FailureKind(NamedTuple):
    """A row: its status, and which lifetime it has; `passing` is of a state, not of the content."""

    status: int
    lifetime: str
    passing: bool = False


@dataclass(frozen=True, kw_only=True)
class FailureLifetimes:
    """For how long a failure is remembered, in seconds."""

    content_s: float = 7 * 86_400.0  # the image itself cannot be used
    missing_s: float = 300.0  # the origin has no such image
    origin_s: float = 10.0  # the origin does not answer as it should
    process_s: float = 60.0  # a worker gave up: too slow, too much memory


KINDS: Final = {
    "not_found": FailureKind(404, "missing_s"),
    "blocked": FailureKind(403, "missing_s"),
    "origin_down": FailureKind(502, "origin_s", passing=True),
    "origin_slow": FailureKind(504, "origin_s", passing=True),
    "origin_refused": FailureKind(502, "origin_s", passing=True),
    "timed_out": FailureKind(504, "process_s"),
    "crashed": FailureKind(500, "process_s"),
}
_OF_CONTENT: Final = FailureKind(422, "content_s")


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
    """The row of a kind; one that is not named is of the content."""
    return KINDS.get(name, _OF_CONTENT)


def until_us(name: str, lifetimes: FailureLifetimes, now_us: int) -> int:
    """Until when a failure that is found now is remembered."""
    return now_us + int(getattr(lifetimes, kind_of(name).lifetime) * 1e6)
