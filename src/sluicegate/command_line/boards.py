"""Boards: what dispatchers show of themselves in `GET /v1/state`, as a viewer takes it.

A board that a viewer cannot read (another version, no board at all) is an error with its remedy.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import SluicegateError

VERSION: Final = 1


class BoardSample(NamedTuple):
    """One dispatcher's board; or why there is none."""

    url: str
    board: dict[str, Any] | None
    error: str = ""


def board_in(state: object, url: str) -> dict[str, Any]:
    """Return the board in the state of the dispatcher at `url`."""
    board = state.get("board") if isinstance(state, dict) else None
    if not isinstance(board, dict):
        raise SluicegateError(f"{url} is no dispatcher: its state has no board")
    version = board.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise SluicegateError(
            f"{url} shows a board of version {version!r}, and this knows up to {VERSION}: "
            "look with a sluicegate as new as the dispatcher's"
        )
    return board
