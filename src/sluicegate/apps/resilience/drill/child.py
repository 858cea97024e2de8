"""Child: the service under drill, a process group of its own that ends with the drill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.system import now_us

END_S: Final = 2.0
_POLL_S: Final = 0.005  # a killed child is gone within a few milliseconds on an idle machine
_TAIL_BYTES: Final = 2_000


@contextlib.contextmanager
def started(
    command: Sequence[str], values: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Start a command with `{name}` in its words replaced; end its whole group with the block."""
    words = [_filled(word, values) for word in command]
    environment = os.environ | {
        f"SLUICEGATE_DRILL_{name.upper()}": value for name, value in values.items()
    }
    if "port" in values:
        environment["PORT"] = values["port"]  # whatever it is in the shell that started the drill
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise BadValue("CMD", words[0], f"give a program that can be run ({error})") from None
        try:
            yield process, printed
        finally:
            _end(process)


def ending_of(process: subprocess.Popen[bytes], printed: IO[bytes]) -> str:
    """Return how the service has ended, with its last line; empty while it runs."""
    code = process.poll()
    if code is None:
        return ""
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(size - _TAIL_BYTES, 0))
    last = printed.read().decode("utf-8", "replace").strip().splitlines()
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
    return f"it ended {how}: {last[-1] if last else 'it printed nothing'}"


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group by its number, with SIGTERM and then SIGKILL; return once it is gone."""
    _signal(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    _signal(process.pid, signal.SIGKILL)  # children of the service may outlive it
    process.wait()
    # A killed process runs until the kernel gets to it. The wait is bounded, because an init
    # process that reaps no orphans keeps their entries forever.
    end_us = now_us() + round(END_S * 1_000_000)
    while _signal(process.pid, 0) and now_us() < end_us:
        threading.Event().wait(_POLL_S)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a group and return whether the group exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS denies signals to a group of zombies
        return False
    return True
