"""Host picker: round robin takes the hosts one after the other.

It is what most clients do: fair, without state, and right while all hosts are alike. It does not
learn how calls went, so a host that is slow or fails keeps its share of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, final

from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rigs.hosts import NOBODY, HostsRig
from sluicegate.policies.client.call_result import CallResult


@final
class _RoundRobin:
    """One host after the other."""

    __slots__ = ("_at", "_calls")

    def __init__(self, names: Collection[str]) -> None:
        self._calls: Final = [_UnmeasuredCall(name) for name in names]
        self._at = 0

    def pick(self, key: str, now_us: int) -> _UnmeasuredCall:
        """Return a call to the next host."""
        self._at = (self._at + 1) % len(self._calls)
        return self._calls[self._at]

    def out(self) -> Collection[str]:
        return NOBODY


@final
class _UnmeasuredCall:
    __slots__ = ("host",)

    def __init__(self, host: str) -> None:
        self.host = host

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        return True


def round_robin(rig: HostsRig, random_source: RandomSource) -> _RoundRobin:
    """Return round robin over all hosts of the rig."""
    return _RoundRobin(rig.names)
