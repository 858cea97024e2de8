"""Bypass: how many attempts a call makes in tests; `sluicegate.testing.set_testing` sets it."""

from __future__ import annotations

from typing import Final, final


@final
class Bypass:
    """One for the process, for threads and tasks of a test alike."""

    __slots__ = ("attempts",)

    def __init__(self) -> None:
        self.attempts = 0  # 0: no test


BYPASS: Final = Bypass()
