"""Damaged: bytes that are not what they should be, or are newer than this program."""

from __future__ import annotations

from typing import final

from sluicegate.contracts.errors import SluicegateError


@final
class Damaged(SluicegateError):  # noqa: N818 - it names the thing, not the class
    """A snapshot or a delta that cannot be used: what is wrong with it, and what to do."""

    def __init__(self, seen: str, remedy: str = "fetch it again") -> None:
        super().__init__(f"the snapshot cannot be used: {seen}; {remedy}")
        self.seen = seen
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[Damaged], tuple[str, str]]:
        return Damaged, (self.seen, self.remedy)
