"""Health: `grpc.health.v1`, as the service itself says whether new work is welcome.

Check and Watch need no identity and are in no queue. A service that we do not have is NOT_FOUND to
Check and SERVICE_UNKNOWN to Watch, as that protocol has it. A watcher hears within
`watch_us` of a change, and at once of one that is announced by `notify`; at most `watchers_max`
may.

A drain says NOT_SERVING to all and then ends the watches, so that none of them keeps a connection
open that has nothing else to wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Final, final

from sluicegate.contracts.access import Identity
from sluicegate.doors.grpc.methods import GrpcError, GrpcStatus, StreamMethod, UnaryMethod
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.wire.protobuf import string_of

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
# The whole instance, the name that mesh configurations use, and the two services by their own.
SERVICES: Final = (
    "",
    "ratelimit",
    "envoy.service.ratelimit.v3.RateLimitService",
    "sluicegate.v1.RateLimiter",
)

SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"
SERVICE_UNKNOWN: Final = b"\x08\x03"
_US: Final = 1_000_000


@final
class GrpcHealth:
    """Reports the state of `services`. Belongs to one loop."""

    def __init__(
        self,
        serving: Callable[[], bool],
        services: Iterable[str] = SERVICES,
        settings: GrpcSettings | None = None,
    ) -> None:
        settings = GrpcSettings() if settings is None else settings
        self._serving = serving
        self._services = frozenset(services)
        self._watchers_max = settings.watchers_max
        self._watch_s = settings.watch_us / _US
        self._draining = False
        self._watchers: set[asyncio.Event] = set()
        self._last_state = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unary(self) -> Mapping[str, UnaryMethod]:
        """The methods for `Methods.unary`."""
        return {CHECK: self.check}

    @property
    def streams(self) -> Mapping[str, StreamMethod]:
        """The methods for `Methods.streams`."""
        return {WATCH: self.watch}

    @property
    def open(self) -> frozenset[str]:
        """The methods for `Methods.open`."""
        return frozenset((CHECK, WATCH))

    def check(self, message: bytes, _by: Identity) -> bytes:
        """Return the state of one service."""
        name = string_of(message, 1)
        if name not in self._services:
            raise GrpcError(GrpcStatus.NOT_FOUND, f"there is no service {name}")
        return self._state()

    async def watch(self, messages: AsyncIterator[bytes], _by: Identity) -> AsyncIterator[bytes]:
        """Yield the state now, and at each change."""
        async for message in messages:
            name = string_of(message, 1)
            break
        else:
            raise GrpcError(GrpcStatus.INTERNAL, "the request ended without a message")
        if len(self._watchers) >= self._watchers_max:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "more watches than watchers_max")
        changed = asyncio.Event()
        self._watchers.add(changed)
        self._set_timer()
        sent = b""
        try:
            while True:
                changed.clear()
                state = self._state() if name in self._services else SERVICE_UNKNOWN
                if state != sent:
                    sent = state
                    yield state
                if self._draining:
                    raise GrpcError(GrpcStatus.UNAVAILABLE, "this instance is ending")
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    def notify(self) -> None:
        """Look now: the state may have changed."""
        self._last_state = self._serving()
        for changed in self._watchers:
            changed.set()

    def drain(self) -> None:
        """Say NOT_SERVING from now on, and end the watches."""
        self._draining = True
        self.notify()

    def _state(self) -> bytes:
        return SERVING if self._serving() and not self._draining else NOT_SERVING

    def _set_timer(self) -> None:
        """Keep one timer for all watchers."""
        if self._timer is None:
            self._last_state = self._serving()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._watch_s, self._poll)

    def _poll(self) -> None:
        self._timer = None
        if not self._watchers:
            return
        if self._serving() != self._last_state:
            self.notify()
        self._set_timer()
