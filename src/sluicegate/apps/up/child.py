"""Child: a command of sluicegate that ends when whoever started it closes its standard input."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from typing import Final

COMMANDS: Final = "sluicegate.cli"
_CHUNK_BYTES: Final = 4_096


def main() -> None:
    """Run the command, and tell ourselves to end as a user would when the pipe closes."""

    def watch() -> None:
        while os.read(0, _CHUNK_BYTES):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
    sys.argv[0] = "sluicegate"
    runpy.run_module(COMMANDS, run_name="__main__")


if __name__ == "__main__":
    main()
