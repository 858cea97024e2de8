"""Subscribers: what changes within a lock is reported outside of it, in order, one at a time.

A policy reports a change where it happens, in the midst of a decision. A listener that took long
there, or asked the same client for anything, would hold up every thread or wait for itself. So the
lock's holder records the change, and whoever has let go of the lock notifies. Only one thread at a
time does; it hands over what others record meanwhile, so each change is reported once, in order.

A listener that raises is logged, and ends neither the call that notifies nor what other listeners
hear. Bounds: `EVENTS_MAX` changes that wait for a slow listener; the oldest are dropped,
and counted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar, final

E = TypeVar("E")

EVENTS_MAX: Final = 1_000
_log: Final = logging.getLogger("sluicegate.resilience")


@final
class Subscribers(Generic[E]):
    """Those who are to hear of changes, and the changes that they have not heard of."""

    __slots__ = ("_notifying", "_subscribed", "dropped", "events")

    def __init__(self) -> None:
        self._subscribed: tuple[Callable[[E], None], ...] = ()
        self.events: deque[E] = deque(maxlen=EVENTS_MAX)
        self._notifying = Lock()
        self.dropped = 0

    def subscribe(self, listener: Callable[[E], None]) -> None:
        """Call it with every change from now on."""
        self._subscribed = (*self._subscribed, listener)

    def record(self, event: E) -> None:
        """Keep a change for them; called by the holder of the lock."""
        if self._subscribed:
            self.dropped += len(self.events) == EVENTS_MAX
            self.events.append(event)

    def notify(self) -> None:
        """Hand over what was recorded; called by whoever holds no lock."""
        events = self.events
        while events and self._notifying.acquire(blocking=False):
            try:
                while events:
                    event = events.popleft()
                    for listener in self._subscribed:
                        _tell(listener, event)
            finally:
                self._notifying.release()


def _tell(listener: Callable[[E], None], event: E) -> None:
    try:
        listener(event)
    except Exception:
        _log.exception("a listener failed at %r", event)
