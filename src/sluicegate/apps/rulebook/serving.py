"""Serve: the admin API, and all that happens by itself: pushes, announcements, canaries."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from argparse import Namespace
from typing import Final, final

from sluicegate import __version__
from sluicegate.apps.rulebook.assembly import Assembly
from sluicegate.apps.rulebook.location import place_said
from sluicegate.apps.rulebook.settings import FILE_NAME, Settings, read_settings
from sluicegate.apps.rulebook.vitals import Vitals
from sluicegate.contracts.access import Access, Grant
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.binding import address_of, bind, bound_address
from sluicegate.doors.bounds import ListenerSettings
from sluicegate.doors.http.bounds import HttpSettings
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.rules.handler import RulesHttp
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.site import hosts_of
from sluicegate.doors.listener import Listener, new_loop
from sluicegate.doors.sniff import Kind
from sluicegate.policies.access import KnownCallers
from sluicegate.service import lifecycle as serving
from sluicegate.service.access_file import ReloadedAccess
from sluicegate.service.bounds import check_all_public, tls_of
from sluicegate.service.workers import say
from sluicegate.shadow.report.page import page_of
from sluicegate.shadow.report.text import text_of
from sluicegate.system import SystemClock

BODY_BYTES_MAX: Final = 16 << 20
ANSWER_S_MAX: Final = 50.0  # to try a change on a large capture takes a while
_log: Final = logging.getLogger("sluicegate.rules")


def run(arguments: Namespace) -> int:
    """Serve until told to end."""
    if arguments.config:
        remedy = f"a rulebook's settings are in {FILE_NAME}, in its folder"
        raise BadValue("--config", arguments.config, remedy)
    settings, effective = read_settings(place_said(arguments), arguments)
    if arguments.print_config:
        sys.stdout.write("\n".join([*effective.lines(), ""]))
        return 0
    logging.basicConfig(
        level=settings.log.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    assembly = Assembly(settings)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_serve(settings, assembly))
    finally:
        assembly.close()


async def _serve(settings: Settings, assembly: Assembly) -> int:
    door = Door(settings, assembly)
    await serving.serve(door, settings.grace_s, say, _log)
    return 0


@final
class Door:
    """What listens."""

    def __init__(self, settings: Settings, assembly: Assembly) -> None:
        self._settings = settings
        self._assembly = assembly
        self.access: Access = _access(settings)
        self.tls = tls_of(settings)
        self._http: RulesHttp | None = None
        self._listener: Listener | None = None

    async def open(self) -> str:
        """Begin what happens by itself, and listen; the line that says it is ready."""
        self._assembly.publishing.start()
        settings, clock = self._settings, SystemClock()
        wanted = [address_of(one, field="--listen") for one in settings.listen]
        check_all_public(settings, wanted)
        bounds = ListenerSettings()
        sockets = [one for address in wanted for one in bind(address, bounds)]
        bound = [bound_address(one) for one in sockets]
        vitals = Vitals(self._assembly)
        self._http = RulesHttp(
            self._assembly.desk,
            vitals,
            self.access,
            clock,
            RulesHttpSettings(
                hosts=hosts_of(bound, settings.hosts),
                metrics_open=settings.metrics_open,
                version=__version__,
            ),
            reports={"html": page_of, "text": text_of},
        )
        vitals.door = self._http.stats
        http = HttpDoor(
            self._http.handle,
            clock,
            HttpSettings(body_bytes_max=BODY_BYTES_MAX, answer_timeout_s=ANSWER_S_MAX),
        )
        self._listener = Listener(sockets, {Kind.HTTP1: http}, settings=bounds, tls=self.tls)
        self._listener.start()
        secure = " over TLS" if settings.tls_cert else ""
        at = " and ".join(str(one) for one in bound)
        named = settings.access or settings.token
        reads = "" if named else "; --access or --token says who may change it, now nobody may"
        return f"sluicegate rules is ready: /v1/rules{secure} on {at}; {self._words()}{reads}"

    async def close(self, grace_s: float) -> None:
        """Take nothing more, let what is under way finish within the grace, and end."""
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                await listener.close(grace_s)
            except asyncio.CancelledError:
                await listener.close(0.0)
                raise
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def drain(self) -> None:
        """It is welcome as long as it is taken: nobody shares this work who could do it instead."""

    def reload(self) -> None:
        """Callers and certificates are read again."""
        if isinstance(self.access, ReloadedAccess):
            self.access.reload()
        if self.tls is not None:
            self.tls.reload()

    def _words(self) -> str:
        live = self._assembly.publishing.ledger.state().fleet.live
        folder = os.path.abspath(self._settings.folder)
        return f"version {live} is live in {folder}" if live else f"{folder} has no version yet"


def _access(settings: Settings) -> Access:
    """Who may do what; where nobody is named, whoever is on this machine may read."""
    if settings.access or settings.token:
        return ReloadedAccess(settings.access, settings.token)
    return KnownCallers((), anonymous={Grant.READ_RULES})
