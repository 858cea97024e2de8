"""Turns: lets other threads run in the middle of long work.

A thread that computes keeps the interpreter for five milliseconds at a time, and who waits for it
is an event loop with decisions to make. So long work stops by itself every millisecond or so.
"""

from __future__ import annotations

from threading import Event
from typing import Final

PAUSE_S: Final = 0.0001
PAGES_A_TURN: Final = 32
ROWS_A_TURN: Final = 2_000

_NEVER: Final = Event()


def give_way() -> None:
    """Let whoever waits have a turn."""
    _NEVER.wait(PAUSE_S)
