"""One session of an account far over its limit, with nothing behind it but what counts calls."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any, Final, cast, final

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.fan_out import FanOut
from sluicegate.apps.pubsub.histories import Histories
from sluicegate.apps.pubsub.history import ChannelHistory
from sluicegate.apps.pubsub.send_pace import SessionBounds
from sluicegate.apps.pubsub.service import PubSub
from sluicegate.apps.pubsub.session import PubSubSession
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.request import Request
from sluicegate.policies.suppression.suppress_master import AccountLimit
from sluicegate.testing import HandClock, SeededChance

LIMIT: Final = AccountLimit(1, 1)
BOUNDS: Final = SessionBounds(10, 0, 0)
COST: Final = 3


@final
class Elsewhere:
    """A home that is never reached."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.passed_on = 0

    def home_of(self, _: ChannelKey) -> str:
        """The same for all."""
        return self.home

    def cost_of(self, _: ChannelKey) -> int:
        """As of two subscribers."""
        return COST

    async def publish(self, *_: object, **__: object) -> int:
        """Count it."""
        self.passed_on += 1
        return 1


@final
class Socket:
    """Takes what is sent."""

    message_bytes_max = 1 << 16
    descriptor = -1
    blocked = False

    def __init__(self) -> None:
        self.refused = 0

    def send(self, frames: bytes) -> None:
        """Count it, if it is a refusal."""
        self.refused += b'"reason":"suppressed"' in frames  # the welcome is none

    send_now = send_rest = send

    def fail(self, code: int, reason: str) -> None:
        """Fail the test: nothing here ends a connection."""
        raise AssertionError(f"{code} {reason}")

    def proceed(self) -> None:
        """Nothing waits."""

    drain = proceed


@final
class Log:
    """Never says that anything is kept."""

    def __init__(self) -> None:
        self.appended = 0

    def append(self, *_: object) -> Future[int]:
        """Count it."""
        self.appended += 1
        return Future()


def suppressed(clock: HandClock) -> AccountLimiter:
    """A node whose account attempts a thousand times its limit."""
    limiter = AccountLimiter("n2", 1, lambda _: LIMIT, SeededChance(1), clock.now_us())
    for _ in range(100):
        clock.advance(ms=60)
        for _ in range(60):
            limiter.admit(Request("ann", caller="ann", cost=COST), clock.now_us())
        limiter.reports(clock.now_us())
    assert limiter.is_suppressed("ann", clock.now_us())
    return limiter


@final
class RefusedAccount:
    """Made within a loop; `home` is the channel's, "" if that is here."""

    def __init__(self, home: str) -> None:
        clock = HandClock()  # a busy machine would let more in
        self.elsewhere, self.socket, self.log = Elsewhere(home), Socket(), Log()
        self.limiter = suppressed(clock)
        histories = Histories(1)
        histories.by_part[0] = ChannelHistory(
            cast("Any", self.log),
            bytes_max=1 << 20,
            age_us_max=1 << 40,
            channels_max=10,
            bucket=lambda: None,
        )
        self.service = PubSub(histories, self.limiter, clock, cast("Any", self.elsewhere))
        self.session = PubSubSession(
            self.socket,
            Identity("ann", [Grant.PUBLISH]),
            self.service,
            FanOut(BOUNDS, clock),
            BOUNDS,
            clock,
            lambda _: None,
        )

    @property
    def let_in(self) -> int:
        """How many went further."""
        return self.elsewhere.passed_on + self.log.appended

    def attempted(self) -> int:
        """What was counted, in messages."""
        (view,) = self.limiter.accounts(0)
        return view.attempted

    @staticmethod
    def publish_text(number: int) -> str:
        """What a client sends."""
        return json.dumps({"type": "publish", "id": number, "channel": "news", "data": "x" * 20})
