"""WebSocket: what one connection may have in flight, and may be sent at once, in counts."""

from __future__ import annotations

import asyncio

import pytest
from websockets.frames import CloseCode, Opcode

from sluicegate.contracts.access import Identity
from sluicegate.doors.websocket.door import WebSocketDoor
from sluicegate.doors.websocket.protocol import WebSocketProtocol, text_frame
from sluicegate.doors.websocket.session import Socket
from sluicegate.doors.websocket.settings import WebSocketSettings
from sluicegate.testing import HandClock
from tests.apps.pubsub.socket import frame
from tests.doors.listening import run
from tests.doors.resp.talk import Wire

SETTINGS = WebSocketSettings()
ASK = frame(Opcode.TEXT, b'{"type":"publish","id":1}')


class Session:
    """Records requests in a list that all sessions share; a test answers them."""

    identity: Identity | None = None

    def __init__(self, socket: Socket, order: list[Session]) -> None:
        self.socket = socket
        self.order = order
        self.asked = 0
        self.answered = 0

    def receive(self, _text: str) -> None:
        self.asked += 1
        self.order.append(self)

    def reject(self, _head: bytes, _size: int, _bytes_max: int) -> None:
        raise AssertionError

    def resume(self) -> None:
        """Nothing waits."""

    def under_way(self) -> int:
        return self.asked - self.answered

    def close(self) -> None:
        """It is gone."""


class Socketless(Wire):
    """A wire with the calls that a WebSocket makes besides."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It takes all."""

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class Client:
    """A connection without a socket."""

    def __init__(self, door: WebSocketDoor, order: list[Session]) -> None:
        made: list[Session] = []

        def open_session(socket: Socket) -> Session:
            made.append(Session(socket, order))
            return made[0]

        self.protocol = WebSocketProtocol(door, None, open_session)
        self.wire = Socketless()
        self.protocol.connection_made(self.wire)
        self.session = made[0]


def test_flood_in_flight_ahead_of_another_is_bounded() -> None:
    async def story() -> None:
        order: list[Session] = []
        door = WebSocketDoor(HandClock(0), SETTINGS)
        flood, honest = Client(door, order), Client(door, order)
        flood.protocol.data_received(ASK * 1_000)
        for _ in range(100):  # as many turns as it likes
            await asyncio.sleep(0)
        in_portion = 1_024 // len(ASK) + 1
        assert 64 <= len(order) <= 64 + in_portion
        assert not flood.wire.is_reading()
        honest.protocol.data_received(ASK)
        assert order[-1] is honest.session  # in the same turn
        ahead = len(order)
        while flood.session.asked < 1_000:
            asked = flood.session.asked
            for _ in range(asked - flood.session.answered):
                flood.session.answered += 1
                flood.protocol.proceed()
            await asyncio.sleep(0)
            honest.session.answered = honest.session.asked
            honest.protocol.data_received(ASK)
            between = len(order) - 1 - ahead
            assert between <= 2 * (64 + in_portion)
            ahead = len(order)
        for client in (flood, honest):
            client.protocol.connection_lost(None)
        await asyncio.sleep(0)

    run(story)


@pytest.mark.parametrize("now", [True, False])
def test_frames_over_the_reply_bound_close_with_1011(now: bool) -> None:
    async def story() -> None:
        client = Client(WebSocketDoor(HandClock(0), SETTINGS), [])
        send = client.protocol.send_now if now else client.protocol.send
        fits = text_frame(bytes(SETTINGS.reply_bytes_max - 10))
        send(fits)
        await asyncio.sleep(0)
        assert client.wire.output == fits
        client.wire.writes.clear()
        send(text_frame(bytes(SETTINGS.reply_bytes_max)))
        await asyncio.sleep(0)
        assert len(client.wire.output) < 200
        assert CloseCode.INTERNAL_ERROR.to_bytes(2, "big") in client.wire.output
        client.protocol.connection_lost(None)

    run(story)
