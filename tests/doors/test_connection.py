"""A connection whose first request is on its way while its listener closes."""

from __future__ import annotations

import asyncio
from typing import cast

from sluicegate.doors.binding import Address
from sluicegate.doors.connection import AcceptedConnection, ListenerCounts, PeerInfo
from sluicegate.doors.listener_settings import ListenerSettings
from sluicegate.doors.sniff import Language

REQUEST = b"GET / HTTP/1.1\r\n"


class Wire:
    """A transport that notes how it ends."""

    def __init__(self) -> None:
        self.ended = ""

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = "close"

    def abort(self) -> None:
        self.ended = "abort"


class Once:
    """A protocol that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def connection_made(self, _: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.told.append(data.decode())

    def drain(self) -> None:
        self.told.append("drain")


class Owner:
    """A listener whose time is moved by hand."""

    def __init__(self) -> None:
        self.settings = ListenerSettings()
        self.counts = ListenerCounts()
        self.closing = False
        self.at_s = 100.0
        self.made = Once()

    def now_s(self) -> float:
        return self.at_s

    def refusal(self, reserved: bool, kind: Language) -> str:
        return ""

    def protocol(self, kind: Language, peer: PeerInfo) -> asyncio.Protocol:
        return cast("asyncio.Protocol", self.made)

    def forget(self, connection: AcceptedConnection) -> None:
        raise AssertionError

    def count_owed(self, connection: AcceptedConnection) -> None:
        """It sums nothing."""


def connected() -> tuple[Owner, AcceptedConnection, Wire]:
    owner, wire = Owner(), Wire()
    connection = AcceptedConnection(owner, "127.0.0.1", 1, Address("", 0), reserved=False)
    connection.connection_made(cast("asyncio.Transport", wire))
    return owner, connection, wire


def close(owner: Owner, connection: AcceptedConnection) -> None:
    owner.closing = True
    connection.drain()


def test_first_request_during_close_is_served_then_drained() -> None:
    owner, connection, wire = connected()
    close(owner, connection)
    owner.at_s += 0.4
    connection.sweep(owner.at_s)
    assert not wire.ended
    connection.data_received(REQUEST)
    assert owner.made.told == ["made", REQUEST.decode(), "drain"]
    owner.at_s += 5.0
    connection.sweep(owner.at_s)
    assert not wire.ended  # the protocol ends it


def test_connection_without_request_ends_half_a_second_after() -> None:
    owner, connection, wire = connected()
    close(owner, connection)
    owner.at_s += 0.5
    connection.sweep(owner.at_s)
    assert wire.ended == "abort"


def test_connection_silent_before_close_ends_at_once() -> None:
    owner, connection, wire = connected()
    owner.at_s += 0.5
    close(owner, connection)
    assert wire.ended == "close"


def test_handshake_that_ends_during_close_is_served() -> None:
    owner, wire = Owner(), Wire()
    connection = AcceptedConnection(owner, "127.0.0.1", 1, Address("", 0), reserved=False)
    close(owner, connection)
    connection.connection_made(cast("asyncio.Transport", wire))
    assert not wire.ended
    connection.data_received(REQUEST)
    assert owner.made.told[-1] == "drain"
