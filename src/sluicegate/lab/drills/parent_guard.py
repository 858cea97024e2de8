"""Parent guard: becomes the command it is given, which then ends when its parent does.

Run as a file of its own, `python -I -S parent_guard.py PARENT_PID COMMAND ...`, so it imports
nothing of ours. Only Linux has a way to ask the kernel for it; elsewhere a drill still ends what it
started, unless the drill itself is killed with -9.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h


def main(parent_pid: int, command: list[str]) -> None:
    """Have the kernel kill the command with its parent; the process number stays the same."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("the process that started this has ended")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
