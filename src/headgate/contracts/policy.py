"""Policy: one judgement about one unit of work.

A policy answers with a decision and, if it admits, may keep something that a permit gives back. It
is told the instant and never asks for it.
"""

from __future__ import annotations

from typing import Protocol

from headgate.contracts.decision import Decision
from headgate.contracts.permit import Permit
from headgate.contracts.request import Request


class Policy(Protocol):
    """Admit or refuse; what was admitted holds a permit until it ends."""

    def admit(self, request: Request, now_us: int) -> tuple[Decision, Permit | None]:
        """Decide; the permit is None exactly if the decision refuses."""
        ...
