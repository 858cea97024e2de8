"""Leash: becomes the command it is given, which then ends when whoever started it does.

Run as a file of its own, `python -I -S leash.py PARENT_PID COMMAND ...`, so it imports nothing of
ours. Where the kernel cannot be asked for it (only Linux can), a drill still ends what it started;
only its own kill -9 would not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h


def main(parent_pid: int, command: list[str]) -> None:
    """Put the leash on; the process keeps its number when it becomes the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("who was to start this has ended")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
