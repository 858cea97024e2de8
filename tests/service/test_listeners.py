from __future__ import annotations

import asyncio
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate.contracts.access import Access
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.http.message import Reply, Request
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.policies.access import OpenAccess
from sluicegate.service.listeners import Doorway
from sluicegate.service.siblings import socket_of
from sluicegate.testing import HandClock

CALLERS = '[[callers]]\nname = "ann"\ntoken_sha256 = "{}"\ngrants = ["check"]\n'
NO_RESP: Any = SimpleNamespace(protocol=None)
NO_GRPC: Any = None


@dataclass(frozen=True)
class Settings:
    listen: tuple[str, ...] = ("127.0.0.1:0",)
    hosts: tuple[str, ...] = ()
    workers: int = 1
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tls_client_optional: bool = False
    access: str = ""
    token: str = ""
    insecure: bool = False
    connections_max: int = 100
    connections_per_address_max: int = 100
    streams_max: int = 100
    message_bytes_max: int = 1 << 16
    idle_s: float = 30.0
    head_s: float = 5.0


class Doors:
    """HTTP doors that say whose they are."""

    def __init__(self) -> None:
        self.made: list[tuple[bool, bool, frozenset[str] | None]] = []

    def __call__(self, access: Access, hosts: frozenset[str] | None, *, alone: bool) -> HttpDoor:
        self.made.append((isinstance(access, OpenAccess), alone, hosts))
        said = b"peers" if alone else b"callers"

        def answer(_request: Request) -> Reply:
            return Reply(200, said, close=True)

        return HttpDoor(answer, HandClock())


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    told = await reader.read()
    writer.close()
    return told


def test_callers_and_peers_each_have_their_door_until_it_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        doorway, doors = Doorway(Settings(hosts=("a.example",)), "thing"), Doors()
        assert doorway.stats() is None
        assert not [*doorway.families()]
        doorway.open(doors, NO_RESP, NO_GRPC)
        doorway.open_to_peers(doors, str(tmp_path), 3)
        (address,) = doorway.addresses
        host, _, port = address.rpartition(":")
        told = await get(*await asyncio.open_connection(host, int(port)))
        assert told.endswith(b"callers")
        path = Path(socket_of(str(tmp_path), 3))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await get(*await asyncio.open_unix_connection(str(path)))).endswith(b"peers")
        (callers_open, alone, hosts), peers = doors.made
        assert (callers_open, alone) == (False, False)
        assert hosts is not None
        assert "a.example" in hosts
        assert peers == (True, True, frozenset({"localhost"}))
        assert next(family.name for family in doorway.families()) == "sluicegate_thing_connections"
        assert doorway.stats() is not None
        for _ in range(2):
            await doorway.close(0.0)
            assert doorway.stats() is None
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, int(port))
            assert not path.exists()

    asyncio.run(story())


def test_who_is_alone_has_no_door_for_peers(tmp_path: Path) -> None:
    async def story() -> None:
        doorway, doors = Doorway(Settings(), "thing"), Doors()
        doorway.open_to_peers(doors, "", 0)
        assert not doors.made
        await doorway.close(0.0)

    asyncio.run(story())


@pytest.mark.parametrize("listen", [("0.0.0.0:0",), ("127.0.0.1:0", "0.0.0.0:0")])
def test_no_address_is_open_to_others_unless_that_was_said(listen: tuple[str, ...]) -> None:
    settings = Settings(listen=listen)
    with pytest.raises(SluicegateError, match="others can reach it"):
        Doorway(settings, "thing")
    Doorway(replace(settings, insecure=True), "thing")


def test_callers_are_read_again_and_a_file_that_is_bad_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "callers.toml"
    file.write_text(CALLERS.format("0" * 64))
    doorway = Doorway(Settings(access=str(file)), "thing")
    assert [one.name for one in doorway.access.identities] == ["ann"]
    file.write_text(CALLERS.format("0" * 64).replace("ann", "bob"))
    assert doorway.reload_callers()
    doorway.reload_certificates()
    assert [one.name for one in doorway.access.identities] == ["bob"]
    file.write_text("no toml")
    with pytest.raises(BadValue):
        doorway.reload_callers()
    assert [one.name for one in doorway.access.identities] == ["bob"]
    assert not Doorway(Settings(), "thing").reload_callers()
