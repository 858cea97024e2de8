"""Context: what a request that is being served tells the calls made for it.

A door sets it for as long as the application runs, in a context variable, so that it follows tasks
and `asyncio.to_thread`; a thread of a plain pool starts without one. A client reads from it how
much time is left, who asks in the end, and how much that matters. Instants are of `system.now_us`:
a deadline crosses processes only as the time that remains.

It carries one thing the other way: a backend that has too much and wants no retry. If the request
then fails, the door hands that on with its answer, so that only one layer repeats.

A task that outlives its request keeps this context. So a door releases the deadline once the answer
is out: it would stop whatever was begun there, such as a refresher, for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Final, Protocol, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.kernels.verdict import NEVER
from sluicegate.system import now_us as system_now_us


class Switches(Protocol):
    """What knows which parts of an answer are left out."""

    def is_degraded(self, name: str, now_us: int) -> bool:
        """Whether this part is."""
        ...


@final
class ServedRequest:
    """The deadline, the criticality and the caller of the request that is being served."""

    __slots__ = (
        "caller",
        "criticality",
        "deadline_us",
        "on_overload",
        "overload_us",
        "switches",
    )

    def __init__(
        self,
        *,
        deadline_us: int | None = None,
        criticality: Criticality = DEFAULT_CRITICALITY,
        caller: str = "",
        switches: Switches | None = None,
    ) -> None:
        self.deadline_us = deadline_us
        self.criticality = criticality
        self.caller = caller
        self.switches = switches
        self.overload_us = -1  # when to come back to a backend that refused this request's call
        self.on_overload: Callable[[], None] | None = None

    def record_overload(self, after_us: int) -> None:
        """A call for this request ended with an overload that is not to be repeated."""
        self.overload_us = max(self.overload_us, after_us, 0)
        if self.on_overload is not None:
            self.on_overload()

    def release_deadline(self) -> None:
        """Let it bind nothing any more: the answer is out, and what still runs is for no caller."""
        self.deadline_us = None


_SERVED: Final[ContextVar[ServedRequest | None]] = ContextVar("sluicegate_served", default=None)


def served_request() -> ServedRequest | None:
    """Return what is being served here; None outside of a request."""
    return _SERVED.get()


def remaining_us(now_us: int) -> int | None:
    """Return the time left, never below zero; None where nothing sets a deadline."""
    served = _SERVED.get()
    if served is None or served.deadline_us is None:
        return None
    return max(served.deadline_us - now_us, 0)


def is_expired(now_us: int) -> bool:
    """Return whether no time is left: whatever would be done now is done in vain."""
    served = _SERVED.get()
    return served is not None and served.deadline_us is not None and now_us >= served.deadline_us


def deadline_refusal() -> Decision:
    """Return the refusal of work that has no time left."""
    return Decision(False, 0, NEVER, 0, DEADLINE, "deadline")


def require_time(now_us: int) -> None:
    """Raise `Refused` if no time is left: before a call, and before a result is written out."""
    if is_expired(now_us):
        raise Refused(deadline_refusal())


def degraded(name: str) -> bool:
    """Return whether this part of the answer is to be left out now; never outside of a request."""
    served = _SERVED.get()
    if served is None or served.switches is None:
        return False
    return served.switches.is_degraded(name, system_now_us())


def set_served(served: ServedRequest) -> Token[ServedRequest | None]:
    """Set it; give the token to `reset_served`."""
    return _SERVED.set(served)


def reset_served(token: Token[ServedRequest | None]) -> None:
    """Set what was there before; nothing where another context ends what was begun in its own.

    A stream that its caller leaves is closed wherever it is found, and nothing was set there.
    """
    try:  # noqa: SIM105 (each request comes here, and a context manager takes three calls)
        _SERVED.reset(token)
    except ValueError:
        pass


@contextmanager
def serve(served: ServedRequest) -> Iterator[ServedRequest]:
    """Set it for a block."""
    token = _SERVED.set(served)
    try:
        yield served
    finally:
        reset_served(token)
