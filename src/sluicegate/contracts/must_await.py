"""Must await: coroutines that say so when their `await` was forgotten.

    if not limiter.atake("ann"):  # NotAwaited: write `await Limiter.atake(...)`
        refuse()

What an `async def` returns is true in a condition, so a forgotten `await` admits everybody; and of
a compiled one Python does not even say that it was never awaited. What these functions return is a
coroutine all the same, with two differences in every build: it raises in a condition, and it warns
when it ends without having been started. `__bool__` is kept from type checkers, so that mypy's
`truthy-bool` reports the condition too; this file is never compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, final
from warnings import warn

from sluicegate.contracts.errors import NotAwaited

T = TypeVar("T")
Block = TypeVar("Block", bound=AbstractAsyncContextManager[Any])


class _MustAwait(Coroutine[Any, Any, T]):
    """A coroutine around another."""

    __slots__ = ("_inner", "_name", "_started")

    def __init__(self, inner: Coroutine[Any, Any, T], name: str) -> None:
        self._inner = inner
        self._name = name
        self._started = False

    def __await__(self) -> Generator[Any, Any, T]:
        self._started = True
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        """Go on to the next wait."""
        self._started = True
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        self._started = True
        return self._inner.throw(*error)

    def close(self) -> None:
        """End it where it is."""
        self._started = True
        self._inner.close()

    def __repr__(self) -> str:
        return f"<coroutine {self._name}>"

    def __del__(self) -> None:
        if not self._started:
            self._inner.close()  # it would warn as well
            warn(
                f"coroutine '{self._name}' was never awaited",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    if not TYPE_CHECKING:

        def __bool__(self) -> bool:
            # Since Python 3.12 asyncio asks whether a task has a coroutine, to print the task.
            asker = sys._getframe(1).f_globals.get("__name__", "")
            if self._started or asker.partition(".")[0] == "asyncio":
                return True
            self.close()
            raise NotAwaited(self._name)


@final
class AwaitedBlock(_MustAwait[Block]):
    """A coroutine whose result is a block: await it, or enter it with `async with`."""

    __slots__ = ("_block",)

    async def __aenter__(self) -> Block:
        self._block: Block = await self
        await self._block.__aenter__()
        return self._block

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)


def must_await(inner: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
    """Return a coroutine that raises in a condition, and warns if it is dropped."""
    return _MustAwait(inner, name)
