"""Nodes that are killed under publishing, and what must be true of what they accepted."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sluicegate.client.pubsub import LostContinuity, PubSubClient, Received
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.kernels.backoff import BackoffSettings
from tests.apps.pubsub.cluster import PubSubCluster, token_of
from tests.engines.child import PATIENCE_S

WRITERS = 32
CHANNELS_EACH = 2
KEPT = "n3"  # is not killed: who subscribes there hears of everything
_BACKOFF = BackoffSettings(base_us=50_000, wait_us_max=200_000)


class Run(NamedTuple):
    """By channel: position and number of what was accepted; what came; what may be accepted."""

    accepted: dict[str, dict[int, int]]
    received: dict[str, list[Received]]
    in_doubt: int


async def publish_under_kills(cluster: PubSubCluster, *, messages: int, kills: int) -> Run:
    """Publish at all nodes in channels of all, while homes are killed with -9 and come back."""
    victims = [name for name in cluster.names if name != KEPT]
    channels = [
        cluster.channel_at(name, prefix=f"kill{turn}-")
        for name in cluster.names
        for turn in range(CHANNELS_EACH)
    ]
    run = Run({name: {} for name in channels}, {name: [] for name in channels}, 0)
    in_doubt = 0
    left = iter(range(messages))
    clients = {
        name: PubSubClient(
            f"ws://127.0.0.1:{port}", token=token_of("ann"), timeout_ms=3_000, backoff=_BACKOFF
        )
        for name, port in cluster.ports.items()
    }

    async def read(channel: str, begun: asyncio.Event) -> None:
        async with clients[KEPT].subscribe(channel, after=0) as received:
            begun.set()
            async for one in received:
                run.received[channel].append(one)

    async def write(number: int) -> None:
        nonlocal in_doubt
        names = cluster.names
        for at in left:
            channel = channels[at % len(channels)]
            while True:
                try:
                    position = await clients[names[number % 3]].publish(channel, at)
                except Refused:  # for certain not accepted: once more
                    await asyncio.sleep(0.05)
                except Unavailable:
                    in_doubt += 1
                    break
                else:
                    run.accepted[channel][position] = at
                    break

    begun = [asyncio.Event() for _ in channels]
    readers = [
        asyncio.create_task(read(channel, event))
        for channel, event in zip(channels, begun, strict=True)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    writers = [asyncio.create_task(write(number)) for number in range(WRITERS)]
    for turn in range(kills):
        at = (turn + 1) * messages // (kills + 1)
        while sum(map(len, run.accepted.values())) + in_doubt < at:
            await asyncio.sleep(0.01)
        victim = victims[turn % len(victims)]
        cluster.nodes[victim].child.kill()
        await asyncio.to_thread(cluster.restart, victim)
    await asyncio.gather(*writers)
    async with asyncio.timeout(PATIENCE_S):
        while not all(_complete(run, channel) for channel in channels):
            await asyncio.sleep(0.05)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await asyncio.gather(*(client.close() for client in clients.values()))
    return run._replace(in_doubt=in_doubt)


def check_delivered(run: Run) -> int:
    """Each accepted message came once, in its order, or is in a gap that was told; nothing else
    came but what got no answer. Return how many are in gaps."""
    unexpected = lost = 0
    for channel, accepted in run.accepted.items():
        got = [one for one in run.received[channel] if not isinstance(one, LostContinuity)]
        positions = [one.position for one in got]
        assert positions == sorted(set(positions)), channel
        came = {one.position: one.data for one in got}
        missing = accepted.keys() - came.keys()
        assert {position for position in missing if _lost(run, channel, position)} == missing
        assert all(came[position] == number for position, number in accepted.items() - {
            (position, accepted[position]) for position in missing
        })  # fmt: skip
        unexpected += len(came.keys() - accepted.keys())
        lost += len(missing)
    assert unexpected <= run.in_doubt
    return lost


def _complete(run: Run, channel: str) -> bool:
    newest = max(run.accepted[channel], default=0)
    received = run.received[channel]
    last = received[-1] if received else None
    if isinstance(last, LostContinuity):
        return last.before > newest
    return not newest or (last is not None and last.position >= newest)


def _lost(run: Run, channel: str, position: int) -> bool:
    return any(
        isinstance(one, LostContinuity) and one.after < position < one.before
        for one in run.received[channel]
    )
