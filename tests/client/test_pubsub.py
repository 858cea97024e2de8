"""The pub/sub client against real services that are killed, limited and slow."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from sluicegate.client.pubsub import SUBPROTOCOL, LostContinuity, PubSubClient, PubSubMessage
from sluicegate.client.sync_pubsub import SyncPubSubClient
from sluicegate.contracts.errors import (
    BadValue,
    Forbidden,
    Refused,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.reasons import CHANNEL_LIMITED
from sluicegate.kernels.backoff import BackoffSettings
from tests.apps.pubsub.cluster import token_of, write_access
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.test_whole import ANN, UNLIMITED, access_of
from tests.engines.child import PATIENCE_S, free_port

SOON: Any = {"backoff": BackoffSettings(base_us=10_000, wait_us_max=50_000)}
PATIENCE_MS = PATIENCE_S * 1_000


def url_of(server: PubSubProcess) -> str:
    return f"ws://127.0.0.1:{server.port}"


@asynccontextmanager
async def client_of(server: PubSubProcess, **settings: Any) -> AsyncIterator[PubSubClient]:
    settings = {"timeout_ms": PATIENCE_MS, **SOON, **settings}
    async with PubSubClient(url_of(server), **settings) as client:
        yield client


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


@pytest.mark.parametrize(
    "data",
    [
        float("nan"),
        [float("-inf")],
        object(),
        {("a", 1): 2},
        "\ud800",
        b"bytes",
        1 << 100_000,
    ],
    ids=["nan", "infinity", "object", "tuple as key", "surrogate", "bytes", "a long number"],
)
def test_value_that_json_cannot_write_raises_before_connecting(data: object) -> None:
    async def story() -> None:
        async with PubSubClient("ws://127.0.0.1:9", timeout_ms=PATIENCE_MS) as client:
            with pytest.raises(BadValue, match="send what JSON in UTF-8 can write"):
                await client.publish("news", data)

    run(story)


@pytest.mark.parametrize("data", [{1: "a", "1": "b"}, [1] * 70_000])
def test_value_that_the_service_cannot_read_raises_at_once(tmp_path: Path, data: object) -> None:
    async def story(server: PubSubProcess) -> None:
        async with client_of(server) as client:
            with pytest.raises(BadValue):
                await client.publish("news", data)
            await client.publish("news", 1)
            assert client.breaks == 0

    flags = (*UNLIMITED, "--message-bytes-max", "1000000")
    with PubSubProcess(tmp_path, *flags) as server:
        run(lambda: story(server))


def test_long_message_is_not_sent_and_nothing_else_fails(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        async with client_of(server) as client:
            await client.publish("news", 1)
            others = [asyncio.create_task(client.publish("news", n)) for n in range(50)]
            for _ in range(20):
                with pytest.raises(BadValue, match=r"70,0.. bytes.*at most 65,536"):
                    await client.publish("news", "x" * 70_000)
            assert len(await asyncio.gather(*others)) == 50
            await client.publish("news", "é" * 30_000)  # two bytes each
            assert client.breaks == 0

    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        run(lambda: story(server))


def test_close_waits_for_acknowledgements(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        client = PubSubClient(url_of(server), timeout_ms=PATIENCE_MS)
        await client.publish("news", "first")
        sent = [asyncio.create_task(client.publish("news", n)) for n in range(100)]
        await asyncio.sleep(0)
        await client.close()
        positions = await asyncio.gather(*sent)
        assert positions == sorted(positions)
        with pytest.raises(Unavailable):
            await client.publish("news", "late")

    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        run(lambda: story(server))
        assert len(server.history("news")["messages"]) == 101


def test_what_is_published_is_received(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        async with client_of(server) as client, client.subscribe("news") as received:
            positions = [await client.publish("news", {"n": n}) for n in range(5)]
            for n, position in enumerate(positions):
                one = await received.next()
                assert isinstance(one, PubSubMessage)
                assert (one.position, one.channel, one.data) == (position, "news", {"n": n})
            assert received.position == positions[-1]
            with pytest.raises(TimeoutError):
                await received.next(timeout_ms=20)

    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        run(lambda: story(server))


def test_a_killed_service_costs_a_subscriber_nothing_that_was_accepted(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")

    async def story() -> None:
        server = PubSubProcess(tmp_path, *UNLIMITED, port=port)
        with server:
            async with client_of(server) as client, client.subscribe("news") as received:
                accepted, found = [], []
                for life in range(3):
                    accepted += [await client.publish("news", [life, n]) for n in range(20)]
                    if life == 1:
                        found = [(await received.next()).position for _ in range(30)]  # type: ignore[union-attr]
                    server.signal(signal.SIGKILL)
                    await asyncio.to_thread(server.child.wait, 30)
                    with pytest.raises(Unavailable):
                        await client.publish("news", "lost", timeout_ms=50)
                    server = await asyncio.to_thread(
                        lambda: PubSubProcess(tmp_path, *UNLIMITED, port=port)
                    )
                found += [(await received.next()).position for _ in range(30)]  # type: ignore[union-attr]
                assert found == accepted
                assert client.reconnects > 0
            await asyncio.to_thread(server.end)

    run(story)


def test_a_refusal_names_the_limit_and_when_to_come_back(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        async with client_of(server) as client:
            with pytest.raises(Refused) as refused:
                await asyncio.gather(*(client.publish("busy", n) for n in range(100)))
            assert refused.value.decision.reason is CHANNEL_LIMITED
            assert refused.value.decision.retry_after_us > 0
            with pytest.raises(BadValue, match="channel"):
                await client.publish("no/pe", 1)
            with pytest.raises(BadValue, match="JSON"):
                await client.publish("news", object())
            await client.publish("news", "and the connection goes on")

    with PubSubProcess(tmp_path, "--channel-rate", "3") as server:
        run(lambda: story(server))


def test_lost_continuity_is_noticed_and_passed(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        async with client_of(server) as client:
            first = await client.publish("news", "x" * 1_000)
            last = [await client.publish("news", "x" * 1_000) for _ in range(40)][-1]
            async with client.subscribe("news", after=first) as received:
                lost = await received.next()
                assert isinstance(lost, LostContinuity)
                assert (lost.after, lost.lost) == (first, None)
                position = lost.before - 1
                while position < last:
                    one = await received.next()
                    assert isinstance(one, PubSubMessage)
                    assert one.position > position
                    position = one.position

    with PubSubProcess(tmp_path, *UNLIMITED, "--history-bytes", "20_000") as server:
        run(lambda: story(server))


def test_who_iterates_slowly_holds_up_nobody_and_misses_nothing(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        async with (
            client_of(server, buffer_max=10) as client,
            client.subscribe("slow") as slow,
            client.subscribe("quick") as quick,
        ):
            await asyncio.gather(*(client.publish("slow", n) for n in range(200)))
            await client.publish("quick", "now")
            assert (await quick.next()).data == "now"  # type: ignore[union-attr]
            assert len(slow._received) == 10  # and no more waits here
            assert [(await slow.next()).data for _ in range(200)] == list(range(200))  # type: ignore[union-attr]

    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        run(lambda: story(server))


def test_who_is_not_known_is_told_at_once(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        async with client_of(server, token=ANN) as ann:
            await ann.publish("news", 1)
        async with client_of(server, token="x" * 43) as nobody:
            with pytest.raises(Unauthenticated):
                await nobody.publish("news", 1)
            with pytest.raises(Unauthenticated):
                async with nobody.subscribe("news"):
                    pass
        async with client_of(server, token="r" * 43) as reader:
            with pytest.raises(Forbidden):
                await reader.publish("news", 1)

    with PubSubProcess(tmp_path, "--access", access_of(tmp_path)) as server:
        run(lambda: story(server))


def test_one_that_may_be_known_soon_is_tried_again(tmp_path: Path) -> None:
    """As nodes do: with no `final` statuses a refused handshake is no reason to give up."""
    port = free_port("127.0.0.1")
    file = tmp_path / "access.toml"
    settings: Any = {"token": token_of("ann"), "final": (), "timeout_ms": PATIENCE_MS, **SOON}

    async def story() -> None:
        async with PubSubClient(f"ws://127.0.0.1:{port}", **settings) as client:
            write_access(file, [], ["bob"])
            with PubSubProcess(tmp_path, "--access", str(file), port=port) as server:
                asked = asyncio.create_task(client.publish("news", 1))
                while client.reconnects < 3:
                    await asyncio.sleep(0.01)
                assert not asked.done()
            server.log.unlink()
            write_access(file, [], ["bob", "ann"])
            with PubSubProcess(tmp_path, "--access", str(file), port=port):
                assert await asked > 0

    run(story)


def test_a_subscription_that_ends_late_leaves_the_next_one_alone(tmp_path: Path) -> None:
    async def story(server: PubSubProcess) -> None:
        async with client_of(server) as client:
            async with client.subscribe("news") as first:
                client.discard(first)
                second = client.subscribe("news")
                await second.__aenter__()
            await client.publish("news", 1)
            one = await second.next()
            assert isinstance(one, PubSubMessage)
            assert one.data == 1

    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        run(lambda: story(server))


def test_a_service_that_is_not_there_is_unavailable_within_the_deadline() -> None:
    async def story() -> None:
        url = f"ws://127.0.0.1:{free_port('127.0.0.1')}"
        async with PubSubClient(url, timeout_ms=100, **SOON) as client:
            with pytest.raises(Unavailable, match="no answer"):
                await client.publish("news", 1)
            with pytest.raises(Unavailable):
                async with client.subscribe("news"):
                    pass
        with pytest.raises(Unavailable, match="closed"):
            await client.publish("news", 1)

    run(story)


@pytest.mark.parametrize("garbage", ["no JSON", "[]", "{}", '{"type": "message"}', "[" * 50_000])
def test_what_is_no_message_costs_a_connection_and_not_the_client(garbage: str) -> None:
    connections = 0

    async def answer(socket: ServerConnection) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await socket.send(garbage)
        async for text in socket:
            request = json.loads(text)
            await socket.send(
                json.dumps({"type": "accepted", "id": request["id"], "position": connections})
            )

    async def story() -> None:
        async with serve(answer, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL]) as server:
            port = server.sockets[0].getsockname()[1]
            url = f"ws://127.0.0.1:{port}"
            async with PubSubClient(url, timeout_ms=PATIENCE_MS, **SOON) as client:
                with suppress(Unavailable):  # it may leave on the connection that breaks
                    await client.publish("news", 1)
                while connections < 2:
                    await asyncio.sleep(0.01)
                assert await client.publish("news", 2) == 2

    run(story)


def test_settings_that_cannot_be_used_are_refused() -> None:
    for settings in ({"url": "http://x"}, {"timeout_ms": 0}, {"buffer_max": 0}):
        with pytest.raises(BadValue):
            SyncPubSubClient(**settings)


def test_threads_publish_and_receive(tmp_path: Path) -> None:
    with (
        PubSubProcess(tmp_path, *UNLIMITED) as server,
        SyncPubSubClient(url_of(server), timeout_ms=PATIENCE_MS) as client,
    ):
        before = client.publish("news", "before")
        with client.subscribe("news", after=0) as received:
            position = client.publish("news", "after")
            one, two = next(received), next(received)
            assert isinstance(one, PubSubMessage)
            assert isinstance(two, PubSubMessage)
            assert [(one.position, one.data), (two.position, two.data)] == [
                (before, "before"),
                (position, "after"),
            ]
            assert received.position == position
            with pytest.raises(TimeoutError):
                received.next(20)
            client.publish("news", "last")
            last = received.next()
            assert isinstance(last, PubSubMessage)
            assert last.data == "last"
        page = client.read("news", after=before)
        assert [one.data for one in page.messages] == ["after", "last"]
        assert client.connected
        assert client.warnings == ()
