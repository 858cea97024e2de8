"""Overload mark: how a service says that it is overloaded, for machines, over HTTP and gRPC.

    x-sluicegate-overload: retry=0, after-ms=250, admitted-permille=120

`retry` is 1 if the same request may come again after `after-ms`, and 0 if whoever sent it must fail
instead and pass the mark on. Until `after-ms` have passed nothing should be sent here.
`admitted-permille` is the part of what comes that is still admitted, for clients that send less
instead of nothing. The times of several refusals differ by `jitter`, so that not all come back at
once.

Over HTTP it stands on a 503 beside `Retry-After` in whole seconds, over gRPC in the trailers of
UNAVAILABLE beside `grpc-retry-pushback-ms`, which is -1 where no retry is wanted. Where a queue has
left too little time, it stands on a 504 or DEADLINE_EXCEEDED. The form is exact: anything else is
no mark, and a reader then goes by the status alone.

A service that fails because a backend of its own has too much hands that on with whatever failure
it answers: `retry=0, after-ms=0, admitted-permille=1000`. It refuses nothing itself, so nothing
else is to be held back; but one layer repeats, and that was not ours to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

FIELD: Final = "x-sluicegate-overload"
PUSHBACK: Final = "grpc-retry-pushback-ms"
AFTER_MS_MAX: Final = 600_000
PERMILLE: Final = 1_000
_CHARS_MAX: Final = 64
_FORM: Final = re.compile(
    r"retry=([01]), after-ms=(0|[1-9][0-9]{0,5}), admitted-permille=(0|[1-9][0-9]{0,3})"
)


class OverloadMark(NamedTuple):
    """May the caller retry, when, and how much is still admitted."""

    retry: bool
    after_ms: int
    admitted_permille: int

    def http_fields(self) -> list[tuple[str, str]]:
        """Return the fields of a 503 or 504."""
        seconds = max(-(-self.after_ms // 1_000), 1)
        return [("retry-after", str(seconds)), (FIELD, self.text())]

    def grpc_trailers(self) -> list[tuple[str, str]]:
        """Return the trailers of UNAVAILABLE or DEADLINE_EXCEEDED."""
        return [(PUSHBACK, str(self.after_ms if self.retry else -1)), (FIELD, self.text())]

    def text(self) -> str:
        """Return it in its exact form."""
        return (
            f"retry={int(self.retry)}, after-ms={self.after_ms}, "
            f"admitted-permille={self.admitted_permille}"
        )


def overload_mark(
    *, retry: bool, after_us: int, jitter: float, draw: float, admitted_permille: int
) -> OverloadMark:
    """Return a mark, its time longer by up to `jitter` of itself as `draw` says, and bounded."""
    after_ms = -(-int(max(after_us, 0) * (1.0 + jitter * draw)) // 1_000)
    admitted = min(max(admitted_permille, 0), PERMILLE)
    return OverloadMark(retry, min(after_ms, AFTER_MS_MAX), admitted)


HANDED_ON: Final = OverloadMark(retry=False, after_ms=0, admitted_permille=PERMILLE)


def handed_on_fields(after_us: int) -> list[tuple[str, str]]:
    """Return the fields of a failure that a backend's overload has led to, for HTTP."""
    seconds = max(-(-min(after_us, AFTER_MS_MAX * 1_000) // 1_000_000), 1)
    return [("retry-after", str(seconds)), (FIELD, HANDED_ON.text())]


def parse_overload_mark(values: Sequence[str]) -> OverloadMark | None:
    """Return the mark that the values of the field hold; None if they are not exactly one."""
    if len(values) != 1 or len(values[0]) > _CHARS_MAX:
        return None
    match = _FORM.fullmatch(values[0])
    if match is None:
        return None
    retry, after_ms, admitted = match.groups()
    if int(after_ms) > AFTER_MS_MAX or int(admitted) > PERMILLE:
        return None
    return OverloadMark(retry == "1", int(after_ms), int(admitted))
