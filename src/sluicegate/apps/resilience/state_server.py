"""State server: shows the clients of a process that serves nothing itself, in a thread of its own.

    with serve_state({"search": client}):  # http://127.0.0.1:7040/v1/state
        work()

It is the service host without signals, which stay the program's: `/v1/state` holds the breakers,
`/metrics` what `client/metrics.py` counts, and a console gathers both kinds of service alike.

Bounds: `SHOWN_MAX` breakers that are not closed, `NAME_LETTERS_MAX` of each name, and the host's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from types import TracebackType
from typing import Annotated, ClassVar, Final, Self, final

from sluicegate.doors.listener import new_loop
from sluicegate.kernels.breaker import CLOSED, STATES
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.metrics import families
from sluicegate.service.app import App
from sluicegate.service.common_settings import LISTEN, ServiceSettings
from sluicegate.service.listeners import Listeners
from sluicegate.service.status import Part
from sluicegate.telemetry.prometheus import MetricFamily

SHOWN_MAX: Final = 100
NAME_LETTERS_MAX: Final = 200


@dataclass(frozen=True, kw_only=True)
class StateSettings(ServiceSettings):
    """Where the state is shown, and to whom."""

    listen: Annotated[tuple[str, ...], LISTEN] = ("127.0.0.1:7040",)


@final
class ClientApp(App[StateSettings]):
    """What the resilient clients of a process do."""

    name: ClassVar[str] = "client"

    def __init__(self, settings: StateSettings, clients: Mapping[str, ResilientClient]) -> None:
        super().__init__(settings)
        self._clients = clients

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        return {"breakers": self._breakers}

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of all clients."""
        return families(self._clients)

    def _breakers(self) -> object:
        """Those that are not closed, and of each client how many there are."""
        shown: list[dict[str, str]] = []
        counts: dict[str, object] = {}
        for name, client in self._clients.items():
            stats = client.breaker.stats()
            counts[name] = {
                "breakers": stats.keys,
                "not_closed": stats.not_closed,
                "opened": stats.opened,
                "refused": stats.refused,
            }
            for (backend, operation, _), state in client.breaker.states().items():
                if state != STATES[CLOSED] and len(shown) < SHOWN_MAX:
                    words = {"client": name, "backend": backend, "operation": operation}
                    row = {key: word[:NAME_LETTERS_MAX] for key, word in words.items()}
                    shown.append({**row, "state": state})
        return {"clients": counts, "not_closed": shown}


@final
class StateServer:
    """Shows it until it is closed; `addresses` is where."""

    def __init__(self, settings: StateSettings, clients: Mapping[str, ResilientClient]) -> None:
        self._settings = settings
        self._clients = clients
        self._ended: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        ready: Future[tuple[str, ...]] = Future()
        self._thread = Thread(target=self._run, args=(ready,), name="state-server", daemon=True)
        self._thread.start()
        self.addresses = ready.result()

    def close(self) -> None:
        """Stop; once more is no error."""
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(ended.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, ready: Future[tuple[str, ...]]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            try:
                runner.run(self._serve(ready))
            except Exception as error:
                if ready.done():
                    raise
                ready.set_exception(error)  # is raised where it was asked for

    async def _serve(self, ready: Future[tuple[str, ...]]) -> None:
        app = ClientApp(self._settings, self._clients)
        try:
            listeners = Listeners(app)
            listeners.open()
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            ready.set_result(listeners.addresses)
            try:
                await self._ended.wait()
            finally:
                await listeners.close(0.0)
        finally:
            await app.end()


def serve_state(
    clients: Mapping[str, ResilientClient], settings: StateSettings | None = None
) -> StateServer:
    """Show these clients by their names, from now on; raise what keeps it from listening.

    A process that forks calls it after the fork.
    """
    return StateServer(StateSettings() if settings is None else settings, clients)
