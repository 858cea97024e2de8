"""Hold: a permit that is held while a block or a function runs.

    with exports.hold("customer:42") as permit: ...
    async with exports.hold("customer:42", wait_s=2): ...

    @exports.limit(key=lambda customer: customer.id)
    def export(customer): ...

What is refused is not run: `Refused` is raised and carries the decision. However the work ends, its
place is given back once. With `renew`, a heartbeat keeps the place as long as the work runs; it
stops with the process, and with an event loop that hangs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, ParamSpec, SupportsIndex, TypeVar, cast, final

from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.limits.permit import KeyPermit
from sluicegate.limits.wrapper import CallCost, CallKey

if TYPE_CHECKING:
    from sluicegate.limits.permit_stores import Heartbeat

P = ParamSpec("P")
R = TypeVar("R")


@final
class Hold:
    """A block, plain or async, in which one permit is held; entered once at a time."""

    __slots__ = ("_aacquire", "_acquire", "_beat", "_beat_here", "_heartbeat", "_permit")

    def __init__(
        self,
        acquire: Callable[[], KeyPermit],
        aacquire: Callable[[], Awaitable[KeyPermit]],
        beat: Callable[[KeyPermit], Heartbeat] | None,
        beat_here: Callable[[KeyPermit], Heartbeat] | None,
    ) -> None:
        self._acquire = acquire
        self._aacquire = aacquire
        self._beat = beat
        self._beat_here = beat_here
        self._permit: KeyPermit | None = None
        self._heartbeat: Heartbeat | None = None

    def __enter__(self) -> KeyPermit:
        self._check_free()
        permit = self._acquire()
        self._begin(permit)
        if self._beat is not None:
            try:
                self._heartbeat = self._beat(permit)
            except BaseException:
                self.__exit__()
                raise
        return permit

    def __exit__(self, *_: object) -> None:
        permit = self._end()
        if permit is not None:
            permit.release()

    async def __aenter__(self) -> KeyPermit:
        self._check_free()
        permit = await self._aacquire()
        self._begin(permit)
        if self._beat_here is not None:
            self._heartbeat = self._beat_here(permit)
        return permit

    async def __aexit__(self, *_: object) -> None:
        permit = self._end()
        if permit is not None:
            await permit.arelease()

    def _check_free(self) -> None:
        if self._permit is not None:
            raise RuntimeError("this block is entered already; call hold() for each")

    def _begin(self, permit: KeyPermit) -> None:
        if not permit:
            raise Refused(permit.decision)
        self._permit = permit

    def _end(self) -> KeyPermit | None:
        permit, self._permit = self._permit, None
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        return permit


@final
class HoldDecorator:
    """A decorator for functions, plain or async; `key` and `count` may be functions of the call."""

    __slots__ = ("_count", "_hold", "_key")

    def __init__(
        self, hold: Callable[[str, SupportsIndex], Hold], key: CallKey, count: CallCost
    ) -> None:
        if not isinstance(key, str) and not callable(key):
            raise BadValue("key", key, "give a text, or a function of the call that returns one")
        self._hold = hold
        self._key = key
        self._count = count

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, held a permit for during each call."""
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise BadValue(
                "limit", function, "hold a permit inside it: a generator works after the call"
            )
        if iscoroutinefunction(function):

            @wraps(function)
            async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self._hold_for(args, kwargs):
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", call_async)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._hold_for(args, kwargs):
                return function(*args, **kwargs)

        return call

    def _hold_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hold:
        key = self._key(*args, **kwargs) if callable(self._key) else self._key
        count = self._count(*args, **kwargs) if callable(self._count) else self._count
        return self._hold(key, count)
