"""Live view: lines that change, in place on a terminal, else one picture after the other."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Final, TextIO

from sluicegate.contracts.errors import BadValue

EVERY_S_MIN: Final = 0.1
EVERY_S_MAX: Final = 3_600.0
Show = Callable[[list[str]], None]
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
