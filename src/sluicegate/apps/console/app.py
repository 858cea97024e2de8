"""App: the console on the host of all services."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final, final

from sluicegate.apps.console.fleet import Fleet
from sluicegate.apps.console.groups import parse_group_grants
from sluicegate.apps.console.handler import Board, ConsoleHandler
from sluicegate.apps.console.live import Live
from sluicegate.apps.console.oidc import OidcLogins, OidcSettings
from sluicegate.apps.console.picture import picture_of
from sluicegate.apps.console.readings import FleetReadings
from sluicegate.apps.console.rulebook import CALL_S_MAX, RulebookAccess
from sluicegate.apps.console.sessions import Sessions
from sluicegate.apps.console.settings import ConsoleSettings
from sluicegate.command_line.service_client import ServiceAddress
from sluicegate.command_line.text import counted
from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpRequest
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.limits.glass.break_glass import Opening
from sluicegate.limits.glass.sources import GlassSource, open_source
from sluicegate.service.app import App, Site
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.status import Part

GLASS_LOOK_S: Final = 1.0


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
            gone_s=settings.gone_s,
        )
        self.board = Board(
            FleetReadings(int(settings.history_s / settings.every_s)),
            may_change=bool(settings.rulebook) and not settings.read_only,
        )
        self.live = Live(self.board.parts)
        self._tls = bool(settings.tls_cert)
        self.rulebook = (
            RulebookAccess(
                settings.rulebook,
                settings.rulebook_ca,
                settings.session_s,
                self.clock,
                tls=self._tls,
                token=settings.rulebook_token,
                person_of=self._logged_in,
            )
            if settings.rulebook
            else None
        )
        self._sessions: Sessions[Identity] | None = None
        self.oidc = _oidc_of(settings, self.clock) if settings.oidc_issuer else None
        self.glass = open_source(settings.glass) if settings.glass else None
        self._openings: Sequence[Opening] = ()

    async def start(self) -> None:
        """Look once, so that the first page has something, and go on looking."""
        await self.fleet.look()
        self._show()
        self.background.start("fleet", lambda: self.fleet.watch(self._show))
        if self.glass is not None:
            self.background.start("glass", partial(self._watch_glass, self.glass))

    async def close(self) -> None:
        """End the looks, and what people have asked for."""
        if self.glass is not None:
            await self.glass.close()
        if self.rulebook is not None:
            await self.rulebook.close()
        if self.oidc is not None:
            await self.oidc.close()
        await self.fleet.close()

    def http(self, site: Site) -> HttpHandler:
        """The pages."""
        self._sessions = Sessions(
            lambda token: self._person(site.access, token),
            self.settings.session_s,
            tls=self._tls,
            name_of=lambda person: person.name,
        )
        handler = ConsoleHandler(
            self.board,
            self.live,
            self.fleet.ask_each,
            site.access,
            self._sessions,
            self.clock,
            site.hosts,
            rulebook=self.rulebook,
            read_only=self.settings.read_only,
            glass=self.glass,
            oidc=self.oidc,
        )
        return self.handler_of(site, handler.routes(), handler=handler)

    def http_settings(self) -> HttpSettings:
        """A rulebook may try a change for a while."""
        return replace(super().http_settings(), answer_timeout_s=CALL_S_MAX + 5)

    def summary(self) -> str:
        """Whom it asks."""
        return f"shows {counted(len(self.fleet.nodes), 'service')}"

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        return {
            "rounds": lambda: self.fleet.rounds,
            "nodes": lambda: [node._asdict() for node in self.board.picture.nodes],
        }

    def _person(self, access: Access, token: str) -> Identity | None:
        found = None if self.oidc is None else self.oidc.person(token)
        return found or access.by_token(token)

    def _logged_in(self, request: HttpRequest) -> str:
        """Return the name of who has logged in at the provider."""
        if self.oidc is None or self._sessions is None:
            return ""
        cookies = request.header(b"cookie")
        person = self.oidc.person(self._sessions.token_in(cookies, self.clock.now_us()))
        return "" if person is None else person.name

    async def _watch_glass(self, glass: GlassSource) -> None:
        """Keep what is not enforced, so that every page says so."""
        while True:
            # Who cannot be asked has changed nothing, and openings end by themselves.
            with suppress(SluicegateError):
                self._openings = (await glass.look()).openings
            await asyncio.sleep(GLASS_LOOK_S)

    def _show(self) -> None:
        now_us = self.clock.now_us()
        picture = picture_of(self.fleet.nodes, now_us)
        # Those of our glass store, of which services hear later, and what services say of others.
        openings = [one for one in self._openings if one.until_us > now_us]
        every = {one.id: one for one in (*openings, *picture.openings)}
        self.board.add(replace(picture, openings=tuple(every.values())))
        self.live.notify()


def _oidc_of(settings: ConsoleSettings, clock: Clock) -> OidcLogins:
    grants: dict[str, frozenset[Grant]] = {}
    for text in settings.oidc_grants:
        group, granted = parse_group_grants(text, "--oidc-grants")
        grants[group] = grants.get(group, frozenset()) | granted
    return OidcLogins(
        OidcSettings(
            issuer=settings.oidc_issuer,
            client=settings.oidc_client,
            secret=settings.oidc_secret,
            url=settings.oidc_url.rstrip("/"),
            name_claim=settings.oidc_name,
            groups_claim=settings.oidc_groups,
            grants=grants,
            ca=settings.oidc_ca,
        ),
        clock,
    )
