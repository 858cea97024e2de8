"""Top view: polls and shows each picture: on a terminal in place, else as lines.

A rate needs two boards, so the first picture comes after one interval. A board that cannot be
parsed is shown as an error beside the others.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TextIO

from sluicegate.apps.kv.address import dispatcher_at
from sluicegate.apps.kv.board_source import board_sources, read_boards
from sluicegate.command_line.board_rates import picture
from sluicegate.command_line.boards import BoardSample
from sluicegate.command_line.live_view import watch
from sluicegate.contracts.errors import Unavailable

Lines = Callable[[dict[str, Any]], list[str]]
# What comes of a board that is not of the form it should have.
_UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def show(
    arguments: Namespace,
    lines: Lines,
    values: Callable[[dict[str, Any]], Any],
    out: TextIO,
    *,
    terminal: str | None = None,
    pause: Callable[[float], object] | None = None,
) -> int:
    """Until it is interrupted, or once; 0 when that went well."""
    sources = board_sources(arguments)

    def pictures() -> Generator[dict[str, Any] | None]:
        before: Sequence[BoardSample] = read_boards(sources)
        yield None
        while True:
            after = _readable(before, read_boards(sources), lines)
            dead = [sample for sample in after if sample.board is None]
            if arguments.once and len(dead) == len(after):
                raise Unavailable(dispatcher_at(dead[0].url), dead[0].error)
            yield picture(before, after)
            before = after

    def line(view: dict[str, Any]) -> str:
        return json.dumps(values(view))

    told = line if arguments.json else None
    return watch(arguments, out, pictures(), lines, told, terminal=terminal, pause=pause)


def _readable(
    before: Sequence[BoardSample], after: Sequence[BoardSample], lines: Lines
) -> Sequence[BoardSample]:
    """The same, with the reason in place of each board that no picture can be made of."""
    earlier = {sample.url: [sample] for sample in before}
    samples: list[BoardSample] = []
    for sample in after:
        try:
            lines(picture(earlier.get(sample.url, []), [sample]))
        except _UNREADABLE as error:
            why = f"its board cannot be understood ({type(error).__name__}: {error})"
            samples.append(BoardSample(sample.url, None, why))
        else:
            samples.append(sample)
    return samples
