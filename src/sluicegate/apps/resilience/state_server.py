"""State server: shows what a process does with the kit, in a thread of its own.

    with serve_state({"search": client}, protections={"shop": app}):
        work()  # http://127.0.0.1:7040/v1/state

It is the service host without signals, which stay the program's: `/v1/state` holds the breakers of
clients and the queues of what `protect` made, `/metrics` what `client/metrics.py` counts, and a
console gathers them as it does services. Metrics of a protection are asked for in its own loop.

Bounds: `SHOWN_MAX` breakers that are not closed, `PROTECTIONS_MAX` protections,
`NAME_LETTERS_MAX` of each name, and the host's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from types import MappingProxyType, TracebackType
from typing import Annotated, ClassVar, Final, Protocol, Self, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.listener import new_loop
from sluicegate.kernels.breaker import CLOSED, STATES
from sluicegate.policies.admission.pressure import origin_of
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.metrics import families
from sluicegate.resilience.server.protection import Protection
from sluicegate.service.app import App
from sluicegate.service.common_settings import LISTEN, ServiceSettings
from sluicegate.service.listeners import Listeners
from sluicegate.service.status import Part
from sluicegate.telemetry.prometheus import MetricFamily

SHOWN_MAX: Final = 100
PROTECTIONS_MAX: Final = 16
NAME_LETTERS_MAX: Final = 200
_NONE: Final[Mapping[str, Protection]] = MappingProxyType({})


class Protected(Protocol):
    """An application or an interceptor that has a protection."""

    protection: Protection


@dataclass(frozen=True, kw_only=True)
class StateSettings(ServiceSettings):
    """Where the state is shown, and to whom."""

    listen: Annotated[tuple[str, ...], LISTEN] = ("127.0.0.1:7040",)


@final
class ClientApp(App[StateSettings]):
    """What the resilient clients of a process do, and its protections."""

    name: ClassVar[str] = "client"

    def __init__(
        self,
        settings: StateSettings,
        clients: Mapping[str, ResilientClient],
        protections: Mapping[str, Protection],
    ) -> None:
        super().__init__(settings)
        self._clients = clients
        self._protections = protections

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        return {"breakers": self._breakers, "protections": self._queues}

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

    def _queues(self) -> object:
        """Of each protection its queue, its level, and what that leaves out of answers."""
        return [_protection_row(*one) for one in self._protections.items()]


def _protection_row(name: str, protection: Protection) -> dict[str, object]:
    stats = protection.stats()
    refused: dict[str, dict[str, int]] = {member.name: {} for member in Criticality}
    for (reason, member), count in stats.refused.items():
        refused[member.name][reason] = count
    return {
        "protection": name[:NAME_LETTERS_MAX],
        "slots": stats.slots,
        "origin": origin_of(stats.slots, stats.found),
        "inflight": stats.gate.inflight,
        "streams": stats.streams,
        "background": stats.background,
        "queued": stats.gate.queued,
        "queued_bytes": stats.gate.queued_bytes,
        "left_queue": stats.left_queue,
        "waited_us": stats.waited_us,
        "admitted": {member.name: count for member, count in stats.admitted.items()},
        "refused": refused,
        "level": stats.level.name,
        "degrade": [
            {**one._asdict(), "part": one.part[:NAME_LETTERS_MAX]}
            for one in protection.degradation.states(stats.level)
        ],
    }


@final
class StateServer:
    """Shows it until it is closed; `addresses` is where."""

    def __init__(
        self,
        settings: StateSettings,
        clients: Mapping[str, ResilientClient],
        protections: Mapping[str, Protection],
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._protections = protections
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
        app = ClientApp(self._settings, self._clients, self._protections)
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
    clients: Mapping[str, ResilientClient],
    settings: StateSettings | None = None,
    *,
    protections: Mapping[str, Protected | Protection] = _NONE,
) -> StateServer:
    """Show these clients by their names, from now on; raise what keeps it from listening.

    So are `protections`: what `protect` returned, an interceptor, or a `Protection`. A process that
    forks calls it after the fork.
    """
    if len(protections) > PROTECTIONS_MAX:
        raise BadValue("protections", len(protections), f"give at most {PROTECTIONS_MAX}")
    shown = {
        name: one if isinstance(one, Protection) else one.protection
        for name, one in protections.items()
    }
    return StateServer(StateSettings() if settings is None else settings, clients, shown)
