from __future__ import annotations

import asyncio
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Route
from sluicegate.policies.access import OpenAccess
from sluicegate.service.app import App, Site
from sluicegate.service.common_settings import ServiceSettings
from sluicegate.service.listeners import Listeners
from sluicegate.service.siblings import ALONE, WorkerId, socket_of

CALLERS = '[[callers]]\nname = "ann"\ntoken_sha256 = "{}"\ngrants = ["check"]\n'
LOCAL = ServiceSettings(listen=("127.0.0.1:0",), hosts=("a.example",))


class ThingApp(App[ServiceSettings]):
    """Says over HTTP whom its door is for."""

    name: ClassVar[str] = "thing"

    def __init__(self, settings: ServiceSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        self.sites: list[Site] = []
        self.callers: list[str] = []

    def change_callers(self, identities: Sequence[Identity]) -> None:
        self.callers = [one.name for one in identities]

    def http(self, site: Site) -> HttpHandler:
        self.sites.append(site)
        text = b"siblings" if isinstance(site.access, OpenAccess) else b"callers"

        def answer(_request: HttpRequest, _identity: Identity, _body: bytes) -> HttpReply:
            return HttpReply(200, text, close=True)

        anywhere = Site(site.status, site.access, None)
        return self.handler_of(anywhere, (Route("GET", "/", answer, "Whom it is for.", {}),))


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


def test_callers_and_siblings_each_have_their_door_until_it_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        app = ThingApp(LOCAL, WorkerId(3, 4, str(tmp_path)))
        listeners = Listeners(app)
        assert not [*listeners.metrics()]
        listeners.open()
        languages, _, address = listeners.summary().partition(" on ")
        assert languages == "HTTP"
        host, _, port = address.rpartition(":")
        answer = await get(*await asyncio.open_connection(host, int(port)))
        assert answer.endswith(b"callers")
        path = Path(socket_of(str(tmp_path), 3))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await get(*await asyncio.open_unix_connection(str(path)))).endswith(b"siblings")
        callers, siblings = app.sites
        assert not callers.status.alone
        assert callers.hosts is not None
        assert "a.example" in callers.hosts
        assert siblings.status.alone
        assert siblings.hosts == frozenset({"localhost"})
        assert next(one.name for one in listeners.metrics()) == "sluicegate_thing_connections"
        for _ in range(2):
            await listeners.close(0.0)
            assert not [*listeners.metrics()]
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, int(port))
            assert not path.exists()

    asyncio.run(story())


def test_who_is_alone_has_no_door_for_siblings() -> None:
    async def story() -> None:
        app = ThingApp(LOCAL)
        listeners = Listeners(app)
        listeners.open()
        assert len(app.sites) == 1
        await listeners.close(0.0)

    asyncio.run(story())


def test_a_language_without_a_door_is_refused() -> None:
    async def story() -> None:
        listeners = Listeners(ThingApp(LOCAL))
        listeners.open()
        host, _, port = listeners.summary().rpartition(" ")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"*1\r\n$4\r\nPING\r\n")
        assert b"PONG" not in await reader.read()
        writer.close()
        await listeners.close(0.0)

    asyncio.run(story())


@pytest.mark.parametrize("listen", [("0.0.0.0:0",), ("127.0.0.1:0", "0.0.0.0:0")])
def test_no_address_is_open_to_others_unless_that_is_set(listen: tuple[str, ...]) -> None:
    async def story() -> None:
        with pytest.raises(SluicegateError, match="others can reach it"):
            Listeners(ThingApp(replace(LOCAL, listen=listen)))
        Listeners(ThingApp(replace(LOCAL, listen=listen, insecure=True)))

    asyncio.run(story())


def test_callers_are_read_again_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        file = tmp_path / "callers.toml"
        file.write_text(CALLERS.format("0" * 64))
        app = ThingApp(replace(LOCAL, access=str(file)))
        listeners = Listeners(app)
        assert app.callers == ["ann"]
        file.write_text(CALLERS.format("0" * 64).replace("ann", "bob"))
        listeners.reload()
        assert app.callers == ["bob"]
        file.write_text("no toml")
        with pytest.raises(BadValue):
            listeners.reload()
        assert app.callers == ["bob"]

    asyncio.run(story())
