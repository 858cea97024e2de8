"""A process that only calls: two clients, one whose backend is gone, and no server of its own."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from sluicegate.apps.resilience.state_server import StateSettings, serve_state
from sluicegate.contracts.errors import Refused
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.resilient import resilient
from sluicegate.resilience.client.settings import client_settings
from tests.apps.console.process import HOSTILE


def main(port: str) -> None:
    """Call, and show the clients until a signal ends it."""
    settings = client_settings({"breaker": {"failures_in_row": 2}})
    clients = {"catalogue": ResilientClient(settings), "prices": ResilientClient(settings)}

    @resilient(clients["catalogue"], HOSTILE, operation="listing")
    def listing() -> None:
        raise ConnectionRefusedError

    @resilient(clients["prices"], "well.internal")
    def price() -> int:
        return 7

    with serve_state(clients, StateSettings(listen=(f"127.0.0.1:{port}",))) as server:
        for _ in range(3):
            price()
            with suppress(ConnectionRefusedError, Refused):
                listing()
        sys.stdout.write(f"{server.addresses[0]}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
