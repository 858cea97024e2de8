"""Progress: how far a command is, on a terminal's standard error; nothing where that is a file."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@final
class CommandProgress:
    """One bar; without a total it shows what is being done, and how many of it."""

    def __init__(self, total: int | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._progress.add_task("images", total=total)

    def phase(self, name: str, count: int) -> None:
        """So many of these are done."""
        self._progress.update(self._task, description=name, completed=count)

    def advance(self, failed: int) -> None:
        """One more is done; so many failed."""
        words = f"images, {failed:,} failed" if failed else "images"
        self._progress.update(self._task, description=words, advance=1)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()
