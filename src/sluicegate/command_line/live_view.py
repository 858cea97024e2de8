"""Live view: lines that change, in place on a terminal, else one picture after the other.

`watch` is the loop of each `top`: it waits, takes the next picture, and shows it.
"""

from __future__ import annotations

import os
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from typing import Final, TextIO, TypeVar

from sluicegate.contracts.errors import BadValue

EVERY_S_MIN: Final = 0.1
EVERY_S_MAX: Final = 3_600.0
Show = Callable[[list[str]], None]
P = TypeVar("P")
_PLAIN_TERMINALS: Final = frozenset({"", "dumb"})


def add_view_flags(parser: ArgumentParser) -> None:
    """How often to look, and in which form to show it."""
    parser.add_argument(
        "--every", default=1.0, type=float, metavar="S", help="seconds between looks (default 1)"
    )
    parser.add_argument("--once", action="store_true", help="show one picture, and exit")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each picture")
    parser.add_argument("--plain", action="store_true", help="lines, also on a terminal")


def check_view_flags(arguments: Namespace) -> None:
    """Refuse what cannot be shown."""
    if not EVERY_S_MIN <= arguments.every <= EVERY_S_MAX:
        raise BadValue("--every", arguments.every, "give seconds from 0.1 to 3600")


def watch(
    arguments: Namespace,
    out: TextIO,
    pictures: Generator[P | None],
    lines: Callable[[P], list[str]],
    line: Callable[[P], str] | None,
    *,
    terminal: str | None = None,
    pause: Callable[[float], object] | None = None,
) -> int:
    """Show pictures until interrupted, or once; return 0.

    `pictures` first yields None, when it has looked for the first time: a rate needs two looks.
    With `line` each picture is one line of text, for programs.
    """
    wait = threading.Event().wait if pause is None else pause
    terminal = os.environ.get("TERM", "") if terminal is None else terminal
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        show = open_view(arguments, out, terminal, stack)
        stack.enter_context(closing(pictures))
        next(pictures)
        while True:
            wait(arguments.every)
            picture = next(pictures)
            if picture is None:
                continue
            if line is None:
                show(lines(picture))
            else:
                out.write(line(picture) + "\n")
                out.flush()
            if arguments.once:
                break
    return 0


def open_view(arguments: Namespace, out: TextIO, terminal: str, stack: ExitStack) -> Show:
    """In place where that can be, lines where not; until `stack` is left."""
    lines_said = arguments.json or arguments.once or arguments.plain
    if not lines_said and out.isatty() and terminal not in _PLAIN_TERMINALS:
        try:
            screen, put = _screen(out)
        except ModuleNotFoundError:
            out.write("the view in place needs rich; pip install '.[kv]' in the checkout\n")
        else:
            stack.enter_context(screen)
            return put
    return lambda lines: _write(out, lines)


def _screen(out: TextIO) -> tuple[AbstractContextManager[object], Show]:
    from rich.console import Console  # noqa: PLC0415 - an extra
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=out, highlight=False, markup=False, emoji=False)
    live = Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop")

    def put(lines: list[str]) -> None:
        room = [*lines[: max(1, console.height - 1)], "Ctrl-C ends"]
        live.update(Text("\n".join(room), no_wrap=True, overflow="ellipsis"), refresh=True)

    return live, put


def _write(out: TextIO, lines: list[str]) -> None:
    out.write("\n".join(lines) + "\n\n")
    out.flush()
