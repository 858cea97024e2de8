"""Progress: a line that is rewritten on a terminal, now and then a line in a log."""

from __future__ import annotations

from threading import Lock
from typing import Final, TextIO, final

from sluicegate.system import now_us

_BAR_CHARS: Final = 24
_TERMINAL_EVERY_US: Final = 200_000
_LOG_EVERY_US: Final = 10_000_000
_MINUTE_S: Final = 60


@final
class UploadProgress:
    """Counts what is read and stored, from any thread. `total` is the input's bytes, 0 unknown."""

    def __init__(self, out: TextIO, total: int, *, quiet: bool) -> None:
        self._out = out
        self._total = total
        self._quiet = quiet
        self._terminal = out.isatty()
        self._lock = Lock()
        self._began_us = now_us()
        self._shown_us = 0
        self._width = 0
        self.read_bytes = 0
        self.stored_rows = 0  # by this run
        self.skipped_rows = 0  # kept by one before
        self.waits = 0

    def count_stored(self, rows: int) -> None:
        """So many rows more are durable."""
        with self._lock:
            self.stored_rows += rows
        self.tick()

    def count_wait(self) -> None:
        """Count a request to wait."""
        with self._lock:
            self.waits += 1
        self.tick()

    def tick(self) -> None:
        """Show the progress, if it is time to."""
        with self._lock:
            at_us = now_us()
            every_us = _TERMINAL_EVERY_US if self._terminal else _LOG_EVERY_US
            if self._quiet or at_us - max(self._shown_us, self._began_us) < every_us:
                return
            self._shown_us = at_us
            self._show(self.line(at_us))

    def end(self, words: str) -> None:
        """The last line."""
        with self._lock:
            if self._terminal and self._width:
                self._out.write("\r" + " " * self._width + "\r")
            self._width = 0
            self._out.write(words + "\n")
            self._out.flush()

    def rate(self) -> float:
        """Return rows a second, stored by this run."""
        return self.stored_rows / max((now_us() - self._began_us) / 1e6, 1e-6)

    def line(self, at_us: int) -> str:
        """Where it stands, in words."""
        passed_s = max((at_us - self._began_us) / 1e6, 1e-6)
        words = [f"{self.stored_rows + self.skipped_rows:,} rows", f"{self.rate():,.0f}/s"]
        if self._total:
            share = min(self.read_bytes / self._total, 1.0)
            full = round(share * _BAR_CHARS)
            words.insert(0, f"[{'#' * full}{'.' * (_BAR_CHARS - full)}] {share:.0%}")
            if 0 < share < 1:
                words.append(f"{_span(passed_s / share - passed_s)} left")
        if self.waits:
            words.append(f"asked to wait {self.waits:,} times")
        return "  ".join(words)

    def _show(self, line: str) -> None:
        if self._terminal:
            self._out.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._out.write(line + "\n")
        self._out.flush()


def _span(seconds: float) -> str:
    minutes, seconds_left = divmod(round(seconds), _MINUTE_S)
    return f"{minutes}m{seconds_left:02d}s" if minutes else f"{seconds_left}s"
