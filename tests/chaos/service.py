"""A service in a separate process: prints its port and ends with its standard input."""

from __future__ import annotations

import sys

from tests.stores.service.door import Service

if __name__ == "__main__":
    with Service() as service:
        sys.stdout.write(f"{service.port}\n")
        sys.stdout.flush()
        sys.stdin.read()
