"""Resilience in tests: calls of resilient clients without waits, repeats and rejections.

    with set_testing(True):           # one attempt a call, for a block
        ...
    set_testing(True, attempts=3)     # three, at once after each other, from now on

Retries do not wait, hedges are not sent, and breakers, throttles and retry budgets neither reject a
call nor learn from it. Deadlines, fallbacks and the reading of errors are unchanged.
The mode is the same for all threads of the process.
"""

from __future__ import annotations

from types import TracebackType
from typing import final

from sluicegate.policies.client.retry import ATTEMPTS_MAX
from sluicegate.policies.settings import within
from sluicegate.resilience.client.bypass import BYPASS


@final
class TestingMode:
    """Context manager that restores the mode before."""

    __test__ = False  # for pytest
    __slots__ = ("_before",)

    def __init__(self, before: int) -> None:
        self._before = before

    def __enter__(self) -> None:
        """It has begun already."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the mode before."""
        BYPASS.attempts = self._before


def set_testing(testing: bool, *, attempts: int = 1) -> TestingMode:
    """Switch the mode of tests on or off; use the result in a `with` to restore it."""
    within("attempts", attempts, 1, ATTEMPTS_MAX)
    before, BYPASS.attempts = BYPASS.attempts, attempts if testing else 0
    return TestingMode(before)
