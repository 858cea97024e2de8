"""What many subscribers share: the bytes of the messages that they have in common."""

from __future__ import annotations

import asyncio
from collections import deque

from sluicegate.apps.pubsub.channel import Channel, ChannelKey, Gap, Message
from sluicegate.apps.pubsub.fan_out import WRITES_A_TURN, FanOut
from sluicegate.apps.pubsub.send_pace import SessionBounds
from sluicegate.system import SystemClock

KEY = ChannelKey("ann", "news")
UNLIMITED = SessionBounds(1, 0, 0)


def message(position: int) -> Message:
    return Message(position, 0, KEY, b'{"position":%d}' % position, 10)


def test_who_takes_the_same_messages_gets_the_same_bytes_and_nobody_gets_others() -> None:
    async def story() -> None:
        fan_out = FanOut(UNLIMITED, SystemClock())
        one, both = [message(1)], [message(1), message(2)]
        first = fan_out.frames_of(KEY, one)
        assert fan_out.frames_of(KEY, one) is first
        assert fan_out.frames_of(KEY, both).startswith(first)
        assert fan_out.frames_of(KEY, both) != first
        other = fan_out.frames_of(ChannelKey("ann", "sport"), one)
        assert b'"channel":"sport"' in other
        assert fan_out.frames_of(KEY, [Gap(0, 1, 1), *one]).endswith(first)
        assert fan_out.gaps == 1

    asyncio.run(story())


def test_a_turn_serves_so_many_sessions_in_the_order_of_waking() -> None:
    served: list[int] = []

    class Reader:
        def __init__(self, number: int) -> None:
            self.number = number

        def send_some(self, left: int) -> int:
            served.append(self.number)
            return 1

    async def story() -> None:
        fan_out = FanOut(UNLIMITED, SystemClock())
        for number in range(WRITES_A_TURN + 1):
            fan_out.wake(Reader(number))
        await asyncio.sleep(0)
        assert served == list(range(WRITES_A_TURN))
        await asyncio.sleep(0)
        assert served == list(range(WRITES_A_TURN + 1))

    asyncio.run(story())


def test_a_subscription_takes_so_many_messages_and_bytes_and_says_that_there_is_more() -> None:
    channel = Channel(KEY, 0, None)
    subscription = channel.subscribe(0, 0)
    woken = deque[bool]()

    class Wake:
        def set(self) -> None:
            woken.append(True)

        def move(self) -> None:
            pass

    subscription.wake = Wake()
    for position in range(1, 8):
        channel.append(message(position))
    woken.clear()
    assert [one.position for one in subscription.take(3, 1_000) if isinstance(one, Message)] == [
        1,
        2,
        3,
    ]
    assert len(woken) == 1
    assert len(subscription.take(100, 11)) == 2  # the second reaches the bound
    assert len(woken) == 2
    channel.remove_oldest()  # of those that are taken: nobody misses it
    assert len(subscription.take(100, 1_000)) == 2
    assert len(woken) == 2
    assert subscription.position == 7
    assert subscription.take(100, 1_000) == []
