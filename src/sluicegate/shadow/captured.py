"""Captured: traffic as it was asked, each different ask kept once.

What a service is asked in an hour are millions of requests of far fewer kinds: the same user on the
same path, time after time. So a capture is a list of the different asks, and of each request only
when it came and which of them it was. That is small to keep and quick to replay, for what can be
worked out about an ask is worked out once.
"""

from __future__ import annotations

from array import array
from typing import Final, final

from sluicegate.contracts.checks import CheckRequest, MeshRequest

# What the service answered when the request was captured.
UNKNOWN: Final = -1
ADMITTED: Final = 0
REFUSED: Final = 1

ALL: Final = 10_000  # entities that were captured, of so many


@final
class Captured:
    """Requests in the order in which they came: `at_us[i]` is when `asks[which[i]]` was asked.

    `entities[n]` is whose work `asks[n]` is: the user, or what the descriptors single out. A
    capture has all requests of an entity or none; `share` of 10,000 entities are in it. `lost` are
    requests that should be here and are not, because a bound was reached.
    """

    __slots__ = ("asks", "at_us", "entities", "lost", "outcomes", "share", "which")

    def __init__(self, *, share: int = ALL) -> None:
        self.asks: list[CheckRequest | MeshRequest] = []
        self.entities: list[str] = []
        self.at_us = array("q")
        self.which = array("I")
        self.outcomes = array("b")
        self.share = share
        self.lost = 0

    def __len__(self) -> int:
        return len(self.which)
