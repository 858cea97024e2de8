"""Verdict: what every limiting kernel's bucket object answers.

Four plain numbers in one order, so that all limiters read alike. The bare `step` functions return
the same four as a tuple behind their new state; this object is for people.

`retry_after_us` is exact: asked again at that distance, and if nothing else came in between, the
same unit is admitted; one microsecond earlier it is refused. It is 0 for an admitted unit and
`NEVER` for one that no waiting will admit, because it costs more than the limit can ever hold.
`reset_after_us` is the time until the bucket is as good as new.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.native import mypyc_attr

NEVER: Final = -1


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Verdict:
    """Allowed or not, what is left, when to come back, when all is forgotten."""

    __slots__ = ("allowed", "remaining", "reset_after_us", "retry_after_us")

    def __init__(
        self, allowed: bool, remaining: int, retry_after_us: int, reset_after_us: int
    ) -> None:
        self.allowed = allowed
        self.remaining = remaining
        self.retry_after_us = retry_after_us
        self.reset_after_us = reset_after_us

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return (
            f"Verdict(allowed={self.allowed}, remaining={self.remaining}, "
            f"retry_after_us={self.retry_after_us}, reset_after_us={self.reset_after_us})"
        )
