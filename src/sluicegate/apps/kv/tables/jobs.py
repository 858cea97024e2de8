"""Admitting: how work in the background asks to enter, as everything else does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.request import Measured
from sluicegate.policies.stack import StackPermit, outcome_of

# Who asks, how many rows and how many bytes; it waits until they may enter, or raises.
Admit: TypeAlias = "Callable[[CallContext, int, int], Awaitable[Permit]]"

KEEPER: Final = "(keeper)"


def keeper_call() -> CallContext:
    """What folding and sweeping ask with: nobody's quota, and the lowest class."""
    return CallContext(Identity(KEEPER, ()), criticality=Criticality.BULK)


async def run_admitted(
    admit: Admit,
    call: CallContext,
    clock: Clock,
    rows: int,
    size_bytes: int,
    work: Callable[[], Awaitable[None]],
) -> None:
    """Do the work once it may enter, and end its permit, whatever comes of it."""
    permit = await admit(call, rows, size_bytes)
    began_us = clock.now_us()
    outcome = Outcome.SUCCESS
    try:
        await work()
    except BaseException as error:
        outcome = outcome_of(error)
        raise
    finally:
        now_us = clock.now_us()
        if isinstance(permit, StackPermit) and outcome is Outcome.SUCCESS:
            permit.request.measured = Measured(max(now_us - began_us, 1), rows, size_bytes)
        permit.end(outcome, now_us)
