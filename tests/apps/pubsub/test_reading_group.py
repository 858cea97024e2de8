"""Many sessions that share a reading: each hears all of it once, in order, or of a gap.

Real sessions on real descriptors, which take as little as their clients read.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
from contextlib import suppress
from typing import Any, cast, final

import pytest

from sluicegate.apps.pubsub.channel import NOBODY, Channel, ChannelKey, ChannelReading, Message
from sluicegate.apps.pubsub.fan_out import WRITES_A_TURN, FanOut
from sluicegate.apps.pubsub.reading_group import GROUP_MIN
from sluicegate.apps.pubsub.send_pace import SendPace, SessionBounds
from sluicegate.apps.pubsub.service import PubSub
from sluicegate.apps.pubsub.session import PubSubSession
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.lab.world import World, run

ACCOUNT = "ann"
BODY = "x" * 700
UNREAD_MAX = 4_000
GRANTS = [Grant.PUBLISH, Grant.SUBSCRIBE]
UNLIMITED = SessionBounds(10, 0, 0)
PACED = SessionBounds(10, 2_000, 4 << 20)


@final
class Service:
    """Channels, as sessions call them."""

    def __init__(
        self, clock: Clock, bounds: SessionBounds, writes_a_turn: int = WRITES_A_TURN
    ) -> None:
        self.clock = clock
        self.bounds = bounds
        self.fan_out = FanOut(bounds, clock, writes_a_turn)
        self.readings: list[ChannelReading] = []
        self.channels = {
            name: Channel(ChannelKey(ACCOUNT, name), 0, None) for name in ("news", "sport")
        }
        self.newest = 0

    def publish(self, name: str) -> None:
        self.newest += 1
        text = json.dumps({"position": self.newest, "data": BODY}).encode()
        channel = self.channels[name]
        channel.append(Message(self.newest, 0, channel.key, text, len(text)))

    def subscribe(self, _: str, name: str, after: int, *, here: bool) -> ChannelReading:
        self.readings.append(self.channels[name].subscribe(after, self.newest))
        return self.readings[-1]

    async def follow(self, reading: ChannelReading) -> ChannelReading:
        reading.wake = NOBODY
        await asyncio.sleep(0)
        return self.subscribe(ACCOUNT, reading.key.name, reading.position, here=False)

    def unsubscribe(self, reading: ChannelReading) -> None:
        reading.close()
        self.readings.remove(reading)

    def is_node(self, _: Identity) -> bool:
        return False

    def connect(self, _: str) -> None:
        pass

    disconnect = connect

    def end_owner(self, _: object) -> None:
        pass


@final
class Client:
    """One connection: a session, what its transport keeps, and who reads or does not."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._ours, self._theirs = socket.socketpair()
        for one in (self._ours, self._theirs):
            one.setblocking(False)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_608)
        self._unsent = b""
        self._received = b""
        self._was_blocked = False
        self.open = True
        self.direct = True  # what may be written at once is
        self.told: list[Any] = []
        self._ids = 0
        self.session = PubSubSession(
            self,
            Identity(ACCOUNT, GRANTS),
            cast("PubSub", service),
            service.fan_out,
            service.bounds,
            service.clock,
            lambda _: None,
        )

    def fail(self, code: int, reason: str) -> None:
        raise AssertionError(f"{code} {reason}")

    def ask(self, kind: str, **fields: object) -> None:
        self._ids += 1
        self.session.receive(json.dumps({"type": kind, "id": self._ids, **fields}))

    def read(self, size: int = 1 << 20) -> None:
        """Take so many bytes, and have the transport send on."""
        with suppress(BlockingIOError):
            self._received += self._theirs.recv(size)
        self._flush()
        if self._was_blocked and len(self._unsent) <= UNREAD_MAX // 4:
            self._was_blocked = False
            self.session.resume()
        data = self._received
        while len(data) >= 2:
            assert data[0] == 0x81, "a frame was cut"
            begin = 2 if data[1] < 126 else 4
            size = data[1] if data[1] < 126 else int.from_bytes(data[2:4], "big")
            if len(data) < begin + size:
                break
            told = json.loads(data[begin : begin + size])
            if told["type"] != "welcome":
                self.told.append(told)
            data = data[begin + size :]
        self._received = data

    def leave(self) -> None:
        self.open = False
        self.session.close()

    def close(self) -> None:
        if self.open:
            self.leave()
        self._ours.close()
        self._theirs.close()

    # As a socket.

    message_bytes_max = 65_536

    @property
    def descriptor(self) -> int:
        return self._ours.fileno() if self.direct and self.open and not self._unsent else -1

    @property
    def blocked(self) -> bool:
        return self._was_blocked or not self.open

    def send(self, frames: bytes) -> None:
        self._unsent += frames
        self._was_blocked |= len(self._unsent) > UNREAD_MAX
        self._flush()

    send_now = send_rest = send

    def proceed(self) -> None:
        pass

    drain = proceed

    def _flush(self) -> None:
        while self._unsent and self.open:
            try:
                self._unsent = self._unsent[self._ours.send(self._unsent) :]
            except BlockingIOError:
                return


async def turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def read_all(clients: list[Client]) -> None:
    """Until nobody is told more, and who is sent too much a second has been."""
    quiet = 0
    while quiet < 20:
        heard = sum(len(one.told) for one in clients)
        for one in clients:
            one.read()
        await asyncio.sleep(0.001)
        quiet = quiet + 1 if heard == sum(len(one.told) for one in clients) else 0


def check(told: list[Any], positions: dict[str, list[int]]) -> None:
    """Each subscription heard every message from where it began, or of a gap in their place."""
    at: dict[str, int] = {}
    for one in told:
        name = one.get("channel", "")
        if one["type"] == "subscribed":
            at[name] = one["position"]
        elif one["type"] == "unsubscribed":
            at.pop(name, None)
        elif one["type"] == "gap":
            lost = [position for position in positions[name] if at[name] < position < one["before"]]
            assert one["after"] <= at[name]
            assert one["lost"] in (None, len(lost))
            at[name] = one["before"] - 1
        elif one["type"] == "message":
            behind = [position for position in positions[name] if position > at[name]]
            assert one["position"] == behind[0], "one was left out, or came twice"
            assert one["data"] == BODY
            at[name] = one["position"]
    for name, position in at.items():
        assert not [one for one in positions[name] if one > position], "one has not come"


@pytest.mark.parametrize("bounds", [UNLIMITED, PACED])
@pytest.mark.parametrize("seed", range(12))
def test_each_hears_all_of_it_once_in_order_or_of_a_gap(seed: int, bounds: SessionBounds) -> None:
    draw = random.Random(seed)
    positions: dict[str, list[int]] = {"news": [], "sport": []}

    async def story(world: World) -> None:
        service = Service(world.clock, bounds, writes_a_turn=5)
        clients = [Client(service) for _ in range(2 * GROUP_MIN)]
        everybody = list(clients)
        shared = 0
        for one in clients:
            one.ask("subscribe", channel="news")

        def publish() -> None:
            name = "news" if draw.random() < 0.8 else "sport"
            service.publish(name)
            positions[name].append(service.newest)

        def read() -> None:
            for one in draw.sample(clients, len(clients) // 2):
                one.read(draw.choice((500, 5_000, 1 << 20)))

        def let_go() -> None:
            channel = service.channels[draw.choice(("news", "sport"))]
            while len(channel.messages) > draw.randrange(1, 20):
                channel.remove_oldest()

        def ask() -> None:
            kind = draw.choice(("subscribe", "unsubscribe"))
            draw.choice(clients).ask(kind, channel="sport")

        def subscribe_again() -> None:
            draw.choice(clients).ask("subscribe", channel="news")

        def encipher() -> None:
            one = draw.choice(clients)
            one.direct = not one.direct

        def replace() -> None:
            one = draw.choice(clients)
            one.leave()
            clients.remove(one)
            clients.append(Client(service))
            everybody.append(clients[-1])
            clients[-1].ask("subscribe", channel="news", after=max(0, service.newest - 9))

        def move() -> None:
            draw.choice(service.readings).wake.move()

        often = [publish] * 30 + [read] * 25 + [let_go] * 5 + [ask] * 5
        steps = [*often, subscribe_again, encipher, replace, move]
        for _ in range(600):
            await turns(draw.randrange(3))
            draw.choice(steps)()
            shared += len(service.channels["news"].subscribers) < len(clients) // 2
        await turns(3)
        await read_all(clients)
        assert shared > 100, "so this is about those who share"
        for one in clients:
            check(one.told, positions)
        for one in everybody:
            one.close()
        for channel in service.channels.values():
            assert not channel.subscribers
            assert channel.readers == 0

    run(story, seed=1)


def test_one_who_does_not_read_holds_up_nobody_and_is_told_of_what_it_lost() -> None:
    async def story(world: World) -> None:
        service = Service(world.clock, UNLIMITED)
        clients = [Client(service) for _ in range(GROUP_MIN + 1)]
        for one in clients:
            one.ask("subscribe", channel="news")
        lazy, *others = clients
        for _ in range(100):
            service.publish("news")
            await turns(2)
            for one in others:
                one.read()
        channel = service.channels["news"]
        while len(channel.messages) > 10:
            channel.remove_oldest()
        assert all(len(one.told) == 101 for one in others)
        await read_all(clients)
        gaps = [one for one in lazy.told if one["type"] == "gap"]
        messages = [one for one in lazy.told if one["type"] == "message"]
        assert len(gaps) == 1
        assert gaps[0]["lost"] == 100 - len(messages) > 0
        check(lazy.told, {"news": list(range(1, 101))})
        told = [one["type"] for client in clients for one in client.told]
        assert service.fan_out.delivered == told.count("message")
        assert service.fan_out.gaps == told.count("gap")
        for one in clients:
            one.close()

    run(story, seed=1)


def test_all_who_share_hear_that_what_comes_next_is_not_known() -> None:
    async def story(world: World) -> None:
        service = Service(world.clock, UNLIMITED)
        clients = [Client(service) for _ in range(GROUP_MIN + 4)]
        for one in clients:
            one.ask("subscribe", channel="news")
        for _ in range(3):
            service.publish("news")
            await turns(3)
        channel = service.channels["news"]
        assert len(channel.subscribers) < GROUP_MIN
        channel.interrupt()
        service.publish("news")
        await turns(5)
        for one in clients:
            one.read()
            assert [told["type"] for told in one.told[-2:]] == ["gap", "message"]
            assert one.told[-2]["lost"] == 0
            one.close()

    run(story, seed=1)


def test_a_turn_writes_to_so_many_of_those_who_share() -> None:
    async def story(world: World) -> None:
        service = Service(world.clock, UNLIMITED)
        clients = [Client(service) for _ in range(WRITES_A_TURN + GROUP_MIN)]
        for one in clients:
            one.ask("subscribe", channel="news")
        for _ in range(3):
            service.publish("news")
            await turns(4)
        for one in clients:
            one.read()
            one.told.clear()
        service.publish("news")
        served = []
        for _ in range(3):
            await turns()
            for one in clients:
                one.read()
            served.append(sum(len(one.told) for one in clients))
        assert served[0] <= WRITES_A_TURN < served[1]
        assert served[-1] == len(clients)
        assert service.fan_out.delivered == 4 * len(clients)
        for one in clients:
            one.close()

    run(story, seed=1)


def test_who_has_used_up_its_pace_goes_by_itself() -> None:
    async def story(world: World) -> None:
        service = Service(world.clock, SessionBounds(10, 5, 0))
        clients = [Client(service) for _ in range(2 * GROUP_MIN)]
        for one in clients:
            one.ask("subscribe", channel="news")
        service.publish("news")
        await turns(3)
        channel = service.channels["news"]
        assert len(channel.subscribers) == len(clients)
        await world.sleep_us(1_000_000)
        for _ in range(2):
            service.publish("news")
            await turns(3)
        assert len(channel.subscribers) == len(clients)
        for one in clients:
            one.close()
        assert not channel.subscribers

    run(story, seed=1)


def test_what_a_session_was_sent_with_others_counts_when_it_goes_by_itself() -> None:
    one, shared = SendPace(SessionBounds(1, 100, 0)), SendPace(SessionBounds(1, 100, 0))
    now_us = 1_000_000
    assert one.spend(5, 0, now_us) == 0
    assert shared.spend(90, 0, now_us) == 0
    one.go_on_from(shared, now_us)
    assert one.rested_us(now_us) == shared.rested_us(now_us) == 900_000
    one.go_on_from(SendPace(SessionBounds(1, 100, 0)), now_us)
    assert one.rested_us(now_us) == 900_000


def test_who_shares_is_sent_no_more_a_second_than_it_may_be_over_all_its_channels() -> None:
    async def story(world: World) -> None:
        service = Service(world.clock, SessionBounds(10, 50, 0))
        clients = [Client(service) for _ in range(GROUP_MIN + 4)]
        for one in clients:
            one.ask("subscribe", channel="news")
        for name in ("news", "sport"):
            for _ in range(60):
                service.publish(name)
                await turns(2)
                for one in clients:
                    one.read()
            for one in clients:
                one.ask("subscribe", channel="sport", after=0)
            await turns(5)
        for one in clients:
            one.read()
            sent = sum(told["type"] == "message" for told in one.told)
            assert sent == 52  # 51 as who goes by itself, and one before they shared
            one.close()

    run(story, seed=1)
