"""Desk of the key-value service: what people and machines may see of it, and have it do."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import MaybeAwaitable


class KvDesk(Protocol):
    """Everything that is told is what JSON can hold.

    Where several workers share a service, each asks the others for what only they have seen.
    """

    def state(self, by: Identity) -> MaybeAwaitable[Mapping[str, object]]:
        """What the service is doing now. Needs AUDIT."""
        ...

    def hot(self, by: Identity) -> MaybeAwaitable[Mapping[str, object]]:
        """Which keys are hot. Needs AUDIT."""
        ...

    def metrics(self) -> MaybeAwaitable[str]:
        """All metrics as Prometheus text."""
        ...

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        ...

    def backup(self, folder: str, by: Identity) -> Awaitable[int]:
        """A copy of one instant into an empty folder of this machine; its bytes. Needs OPERATE.

        A door waits no longer than for any answer, and then cancels: one that may take longer goes
        on by itself.
        """
        ...
