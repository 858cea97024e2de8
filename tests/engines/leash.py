"""Becomes the command it is given, after asking the kernel to kill it when its parent ends.

Run as a script, never imported: `python -I -S leash.py PARENT_PID COMMAND...`. It may use only
the standard library and must stay small, since each server starts through it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Put the leash on, then exec: the process id stays the one the parent knows."""
    parent_pid, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        # A preexec_fn would do the same in fewer lines, but it runs Python between fork and exec
        # of a process that has driver threads; that can deadlock.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("the parent ended before its child began")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
