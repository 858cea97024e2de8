"""A chat of two in one process: publish and subscribe with `sluicegate pubsub`.

    sluicegate pubsub                       # in another terminal
    python examples/pubsub_chat.py          # or with the URL of a service

Each hears everything that is said in the room, in the order in which it was accepted.
"""

from __future__ import annotations

import asyncio
import sys

from sluicegate.client.pubsub import ChannelSubscription, LostContinuity, PubSubClient

ROOM = "room"


async def listen(name: str, said: ChannelSubscription, count: int) -> None:
    """Show what is said."""
    while count:
        one = await said.next()
        if isinstance(one, LostContinuity):
            sys.stdout.write(f"{name} has missed something\n")
            continue
        sys.stdout.write(f"{name} hears: {one.data['by']}: {one.data['text']}\n")
        count -= 1


async def main(url: str) -> None:
    """Say and hear."""
    async with (
        PubSubClient(url) as ann,
        PubSubClient(url) as bob,
        ann.subscribe(ROOM) as to_ann,
        bob.subscribe(ROOM) as to_bob,
    ):
        await ann.publish(ROOM, {"by": "Ann", "text": "Is anybody here?"})
        await bob.publish(ROOM, {"by": "Bob", "text": "I am."})
        await asyncio.gather(listen("Ann", to_ann, 2), listen("Bob", to_bob, 2))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7090"))
