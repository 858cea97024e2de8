"""Top view: polls and shows each picture: on a terminal in place, else as lines.

A rate needs two boards, so the first picture comes after one interval. A board that cannot be
parsed is shown as an error beside the others.
"""

from __future__ import annotations

import json
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, TextIO

from sluicegate.apps.kv.address import dispatcher_at
from sluicegate.apps.kv.board_source import board_sources, read_boards
from sluicegate.command_line.board_rates import picture
from sluicegate.command_line.boards import BoardSample
from sluicegate.command_line.live_view import open_view
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
    terminal: str = "",
    pause: Callable[[float], object] | None = None,
) -> int:
    """Until it is interrupted, or once; 0 when that went well."""
    sources = board_sources(arguments)
    wait = threading.Event().wait if pause is None else pause
    with ExitStack() as stack:
        put = open_view(arguments, out, terminal, stack)
        try:
            before: Sequence[BoardSample] = read_boards(sources)
            while True:
                wait(arguments.every)
                after = _readable(before, read_boards(sources), lines)
                dead = [sample for sample in after if sample.board is None]
                if arguments.once and len(dead) == len(after):
                    raise Unavailable(dispatcher_at(dead[0].url), dead[0].error)
                view = picture(before, after)
                if arguments.json:
                    out.write(json.dumps(values(view)) + "\n")
                    out.flush()
                else:
                    put(lines(view))
                if arguments.once:
                    return 0
                before = after
        except KeyboardInterrupt:
            return 0


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
