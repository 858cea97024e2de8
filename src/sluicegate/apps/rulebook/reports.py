"""Reports: what a replay found, for people, for programs, and as a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from sluicegate.contracts.errors import Unavailable
from sluicegate.shadow.report.page import page_of
from sluicegate.shadow.report.report import as_json
from sluicegate.shadow.report.text import text_of


def write_page(report: Mapping[str, Any], path: str) -> None:
    """The report as one page that needs nothing else."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page_of(report))
    except OSError as error:
        raise Unavailable(f"the file {path}", error.strerror or str(error)) from None


def write_report(report: Mapping[str, Any], *, as_program: bool) -> None:
    """The report to standard output."""
    if as_program:
        sys.stdout.write(as_json(dict(report)))
    else:
        colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        sys.stdout.write(text_of(report, colours=colours))


class Bar:
    """How far a replay is, on a terminal; nothing where nobody looks."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._live = sys.stderr.isatty()
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        """So many of so many."""
        percent = done * 100 // total if total else 100
        if self._live and percent != self._shown:
            self._shown = percent
            end = "\n" if percent == 100 else ""
            sys.stderr.write(f"\r{self._what} {percent:3d}% of {total:,}{end}")
            sys.stderr.flush()
