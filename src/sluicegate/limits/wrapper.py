"""Limit wrapper: a limit put around a function or a block of code.

    @limiter.limit("10/minute", key=lambda user: user.name)
    def send_mail(user): ...

    with limiter.limit("10/minute", key="mail"):
        ...

What is refused is not run: `Refused` is raised and carries the decision. The key is never guessed:
a limit that all callers share must say so by a fixed key. Nothing is held while the function runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, SupportsIndex, TypeVar, cast

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused

P = ParamSpec("P")
R = TypeVar("R")

CallKey = str | Callable[..., str]
CallCost = SupportsIndex | Callable[..., SupportsIndex]


class LimitWrapper:
    """A decorator for functions, plain or async, and a context manager, plain or async.

    `key` and `cost` may be functions of the arguments of the call that is limited.
    """

    __slots__ = ("_atake", "_cost", "_key", "_take")

    def __init__(
        self,
        take: Callable[[str, SupportsIndex], Decision],
        atake: Callable[[str, SupportsIndex], Awaitable[Decision]],
        key: CallKey,
        cost: CallCost,
    ) -> None:
        if not isinstance(key, str) and not callable(key):
            raise BadValue("key", key, "give a text, or a function of the call that returns one")
        self._take = take
        self._atake = atake
        self._key = key
        self._cost = cost

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, asked for before each call."""
        if iscoroutinefunction(function):

            @wraps(function)
            async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                _enter(await self._atake(*self._key_and_cost(args, kwargs)))
                return await function(*args, **kwargs)

            return cast("Callable[P, R]", call_async)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            _enter(self._take(*self._key_and_cost(args, kwargs)))
            return function(*args, **kwargs)

        return call

    def __enter__(self) -> Decision:
        return _enter(self._take(*self._of_block()))

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        return None

    async def __aenter__(self) -> Decision:
        return _enter(await self._atake(*self._of_block()))

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        return None

    def _key_and_cost(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, SupportsIndex]:
        key = self._key(*args, **kwargs) if callable(self._key) else self._key
        return key, self._cost(*args, **kwargs) if callable(self._cost) else self._cost

    def _of_block(self) -> tuple[str, SupportsIndex]:
        if callable(self._key) or callable(self._cost):
            raise BadValue("key", self._key, "a block has no arguments: give a text and a number")
        return self._key, self._cost


def _enter(decision: Decision) -> Decision:
    if not decision.allowed:
        raise Refused(decision)
    return decision
