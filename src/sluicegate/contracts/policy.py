"""Policy: one judgement about one unit of work.

A policy is given the instant and never asks for it. It admits by returning a permit, which whoever
was admitted ends exactly once, or refuses by returning a decision with its own reason. One that has
to wait (a queue) is called with a clock instead, and suspends in the running loop; it has neither a
clock nor a loop of its own.

A request that a later policy refuses is unwound: its permits end as IGNORE with `spent=False`, and
each policy takes back what it had charged.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import BasePermit, Outcome, Permit
from sluicegate.contracts.request import Request

Admission: TypeAlias = Permit | Decision


class Policy(Protocol):
    """Judges at once."""

    def admit(self, request: Request, now_us: int) -> Admission:
        """A permit admits, a decision refuses."""
        ...


class WaitingPolicy(Protocol):
    """May suspend before it judges."""

    async def admit(self, request: Request, clock: Clock) -> Admission:
        """A permit admits, a decision refuses; if it is cancelled, nothing is held."""
        ...


class PromptPolicy(Protocol):
    """A waiting policy that can tell whether anybody would have to wait.

    Without a step of the loop between the two, a request that is `ready` is decided by `admit_now`
    and does not wait.
    """

    def ready(self, request: Request, now_us: int) -> bool:
        """Whether the request would be decided at once."""
        ...

    def admit_now(self, request: Request, now_us: int) -> Admission:
        """A permit or a decision, for whoever is ready."""
        ...


class BasePolicy:
    """A policy whose class is compiled: a stack asks it without looking its method up."""

    __slots__ = ()

    def admit(self, request: Request, now_us: int) -> Admission:
        """Judge, as `Policy.admit` says."""
        raise NotImplementedError


class BasePromptPolicy:
    """The same of a waiting policy, where nobody has to wait."""

    __slots__ = ()

    def ready(self, request: Request, now_us: int) -> bool:
        """Answer as `PromptPolicy.ready` says."""
        raise NotImplementedError

    def admit_now(self, request: Request, now_us: int) -> Admission:
        """Judge, as `PromptPolicy.admit_now` says."""
        raise NotImplementedError


@final
class NothingHeld(BasePermit):
    """The permit of a policy that keeps nothing of what it admits."""

    __slots__ = ()

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Nothing to end."""
        return True


NOTHING_HELD: Final = NothingHeld()
