"""Sync client: a client for threads. It is the same client, in one background loop for all of them.

What is known here already, a standing refusal or a leased unit, is answered in the thread that
asks; only what must be asked crosses over, and what many threads ask at once leaves in one write.
A child after a fork asks on connections of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

from sluicegate.client.answer import Answer
from sluicegate.client.client import Client, ClientStats
from sluicegate.client.pair import check_cost, pair_of
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import NO_ATTRIBUTES
from sluicegate.stores.thread_bridge import ThreadBridge

_NOTHING: Final = ClientStats(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "")


@final
class SyncClient:
    """A `Client` that blocks the thread which asks; its settings are those of `Client`."""

    __slots__ = ("_bridge",)

    def __init__(self, url: str = "sluicegate://127.0.0.1:7070", **settings: Any) -> None:
        open_client: Callable[[], Client] = lambda: Client(url, **settings)  # noqa: E731
        open_client()  # settings that cannot be used are told here, not at the first request
        self._bridge: ThreadBridge[Client] = ThreadBridge(open_client)

    def check(
        self,
        user: str,
        resource: str,
        cost: int = 1,
        *,
        priority: Criticality | str | None = None,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
        timeout_ms: float | None = None,
    ) -> Answer:
        """May `cost` units of work enter? It is counted if so."""
        client = self._bridge.store
        if client is not None:
            pair = pair_of(user, resource, priority, headers)
            answer_here = client.answer_here(pair, check_cost(cost))
            if answer_here is not None:
                return answer_here
        return self._bridge.run(
            lambda client: client.check(
                user, resource, cost, priority=priority, headers=headers, timeout_ms=timeout_ms
            )
        )

    def peek(
        self,
        user: str,
        resource: str,
        cost: int = 1,
        *,
        priority: Criticality | str | None = None,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> Answer:
        """What the service would answer; nothing is counted. `Unavailable` if it does not."""
        return self._bridge.run(
            lambda client: client.peek(user, resource, cost, priority=priority, headers=headers)
        )

    def reset(
        self,
        user: str,
        resource: str,
        *,
        priority: Criticality | str | None = None,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> int:
        """Forget what was counted; how many rules. `Unavailable` if that cannot be done now."""
        return self._bridge.run(
            lambda client: client.reset(user, resource, priority=priority, headers=headers)
        )

    def connect(self) -> None:
        """Return when connected, or raise what prevents it."""
        self._bridge.run(lambda client: client.connect())

    def stats(self) -> ClientStats:
        """Counts since the start."""
        client = self._bridge.store
        return _NOTHING if client is None else client.stats()

    def close(self) -> None:
        """Give back what is leased, and end."""
        self._bridge.close()

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()
