"""Arrival: what a door knows of one unit of work that wants to enter.

A door makes one from its protocol and passes it to a guard, which reads only what its rules name;
so a door computes nothing that no rule needs. What is unknown is an empty text.
"""

from __future__ import annotations

from typing import Protocol


class Arrival(Protocol):
    """One request, call or message, as rules see it."""

    @property
    def method(self) -> str:
        """GET, POST, ...; WEBSOCKET for a handshake; GRPC for a call, TASK for a task."""
        ...

    @property
    def path(self) -> str:
        """The path without its query; `/package.Service/Method`; the name of a task."""
        ...

    def address(self) -> str:
        """The caller's address: the one seen by the outermost proxy that is trusted."""
        ...

    def header(self, name: str) -> str:
        """The value of a header (gRPC: metadata) by its lower-case name; the first of several."""
        ...

    def user(self) -> str:
        """The authenticated user, if the program has set one before the guard is called."""
        ...
