"""App: the console on the host of all services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from sluicegate.apps.console.fleet import Fleet
from sluicegate.apps.console.handler import Board, ConsoleHandler
from sluicegate.apps.console.live import Live
from sluicegate.apps.console.picture import picture_of
from sluicegate.apps.console.readings import FleetReadings
from sluicegate.apps.console.sessions import Sessions
from sluicegate.apps.console.settings import ConsoleSettings
from sluicegate.command_line.service_client import ServiceAddress
from sluicegate.command_line.text import counted
from sluicegate.doors.http.message import Handler
from sluicegate.service.app import App, Site
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.status import Part


@final
class ConsoleApp(App[ConsoleSettings]):
    """What a fleet of services admits and refuses, and why."""

    name: ClassVar[str] = "console"

    def __init__(self, settings: ConsoleSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        self.fleet = Fleet(
            [
                ServiceAddress(url, settings.services_token, settings.services_ca)
                for url in settings.services
            ],
            self.clock,
            every_s=settings.every_s,
            timeout_s=settings.timeout_s,
        )
        self.board = Board(FleetReadings(int(settings.history_s / settings.every_s)))
        self.live = Live(self.board.parts)

    async def start(self) -> None:
        """Look once, so that the first page has something, and go on looking."""
        await self.fleet.look()
        self._show()
        self.background.start("fleet", lambda: self.fleet.watch(self._show))

    async def close(self) -> None:
        """End the looks."""
        await self.fleet.close()

    def http(self, site: Site) -> Handler:
        """The pages."""
        tls = bool(self.settings.tls_cert)
        handler = ConsoleHandler(
            self.board,
            self.live,
            self.fleet.ask_each,
            site.access,
            Sessions(site.access, self.settings.session_s, tls=tls),
            self.clock,
            site.hosts,
        )
        return self.handler_of(site, handler.routes(), handler=handler)

    def summary(self) -> str:
        """Whom it asks."""
        return f"shows {counted(len(self.fleet.nodes), 'service')}"

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        return {
            "rounds": lambda: self.fleet.rounds,
            "nodes": lambda: [node._asdict() for node in self.board.picture.nodes],
        }

    def _show(self) -> None:
        self.board.add(picture_of(self.fleet.nodes, self.clock.now_us()))
        self.live.notify()
