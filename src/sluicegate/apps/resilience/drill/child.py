"""Child: the service under drill, a process group of its own that ends with the drill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Final

from sluicegate.contracts.errors import BadValue

END_S: Final = 2.0
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
    """End the group by its number, gently and then not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    # What the service has started may outlive it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
