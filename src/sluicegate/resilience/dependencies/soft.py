"""Soft: a function whose failure leaves a part of an answer out instead of failing it.

    @soft(default=list, timeout_s=0.3)
    async def reviews(listing: str) -> list[str]: ...

    await reviews("lamp")                    # the reviews, or an empty list
    (await reviews.result("lamp")).degraded  # whether it is the fallback

Any exception, no answer in time and no free slot have the same effect: the caller gets the last
good value for the same arguments, if `stale_s` allows it, else the default, else the error. Plain
functions can be soft too; each call has a thread, so its caller waits at most `timeout_s`.

A value is kept for equal arguments alone: give `stale_s` only to a function whose result depends on
nothing else, such as the user of the request, or name that in `key`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, update_wrapper
from typing import Any, Final, Generic, Never, ParamSpec, TypeVar, final, overload

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.call_result import CallResult
from sluicegate.policies.client.fallback import Fallback, FallbackSettings
from sluicegate.policies.settings import micros_of
from sluicegate.resilience.dependencies.dependency import SLOTS, Dependency

P = ParamSpec("P")
T = TypeVar("T")

_PLAIN: Final = (str, bytes, int, float, bool, type(None))


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


@final
class SoftTask(Generic[P, T]):
    """A soft coroutine function."""

    def __init__(self, function: Callable[P, Awaitable[T]], parts: _Parts) -> None:
        update_wrapper(self, function)
        self._function = function
        self._parts = parts
        self.dependency: Dependency[T] = parts.dependency(function)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return its value, or the fallback."""
        return (await self.result(*args, **kwargs)).unwrap()

    async def result(self, *args: P.args, **kwargs: P.kwargs) -> CallResult[T]:
        """Return the whole result, with its marks."""
        work = partial(self._function, *args, **kwargs)
        key = self._parts.key_of(args, kwargs)
        return await self.dependency.call(work, key, default=self._parts.default)


@final
class SoftFunction(Generic[P, T]):
    """A soft function that blocks."""

    def __init__(self, function: Callable[P, T], parts: _Parts) -> None:
        update_wrapper(self, function)
        self._function = function
        self._parts = parts
        self.dependency: Dependency[T] = parts.dependency(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return its value, or the fallback."""
        return self.result(*args, **kwargs).unwrap()

    def result(self, *args: P.args, **kwargs: P.kwargs) -> CallResult[T]:
        """Return the whole result, with its marks."""
        work = partial(self._function, *args, **kwargs)
        key = self._parts.key_of(args, kwargs)
        return self.dependency.call_now(work, key, default=self._parts.default)


@final
class _Parts:
    """The arguments of `soft`."""

    def __init__(
        self,
        default: Callable[[], Any] | None,
        settings: FallbackSettings,
        slots: int,
        key: Callable[..., str] | None,
        clock: Clock | None,
    ) -> None:
        self.default = default
        self._settings = settings
        self._slots = slots
        self._key = key
        self._clock = clock

    def dependency(self, function: Callable[..., Any]) -> Dependency[Any]:
        name = _name(function)
        if not callable(function):
            raise BadValue("soft", function, "decorate a function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadValue("soft", name, "decorate a function that returns a value")
        fallback: Fallback[Any] = Fallback(self._settings)
        return Dependency(name, fallback, slots=self._slots, clock=self._clock)

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the arguments as text; only plain values have a text that identifies them."""
        if self._settings.stale_us_max == 0:
            return ""
        if self._key is not None:
            return self._key(*args, **kwargs)
        for value in (*args, *kwargs.values()):
            if type(value) not in _PLAIN:
                raise BadValue("soft.stale_s", value, "give `key`, which names the arguments")
        return repr((args, sorted(kwargs.items())))


@final
class SoftDecorator:
    """Makes a function soft; `soft` returns it."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    @overload
    def __call__(  # type: ignore[overload-overlap] # a coroutine function is the first of the two
        self, function: Callable[P, Awaitable[T]]
    ) -> SoftTask[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T]) -> SoftFunction[P, T]: ...
    def __call__(self, function: Callable[P, Any]) -> SoftTask[P, Any] | SoftFunction[P, Any]:
        """Return the function with its fallback."""
        if inspect.iscoroutinefunction(function):
            return SoftTask(function, self._parts)
        return SoftFunction(function, self._parts)


def soft(
    *function: Never,
    default: Callable[[], Any] | None = None,
    timeout_s: float = 0.5,
    stale_s: float = 0.0,
    slots: int = SLOTS,
    key: Callable[..., str] | None = None,
    clock: Clock | None = None,
) -> SoftDecorator:
    """Return a decorator for a part that an answer can do without.

    `default` makes the fallback, such as `list`. A call takes at most `timeout_s`, and at most
    `slots` calls run at once. A good value replaces failures until it is `stale_s` old; `key`
    names the arguments that it depends on.
    """
    if function:
        raise BadValue("soft", _name(function[0]), "write @soft(), as @soft(default=list)")
    if default is not None and not callable(default):
        raise BadValue("soft.default", default, "give a function that makes it, such as `list`")
    settings = FallbackSettings(
        timeout_us=micros_of("soft.timeout_s", timeout_s),
        stale_us_max=micros_of("soft.stale_s", stale_s),
    )
    return SoftDecorator(_Parts(default, settings, slots, key, clock))
