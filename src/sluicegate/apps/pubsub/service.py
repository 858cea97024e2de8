"""Service: publish, subscribe and read, each for an account and within its limits.

Only a publish is refused, and the reason says which limit it was: that of the channel, that of the
account (`cluster/account_limiter.py`), or the number of channels. It costs one message, and one for
each who is subscribed. What the limits refuse counts as attempted, or the account master would see
a rate that falls with its own refusals, and let go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from sluicegate.apps.pubsub.channel import Channel, ChannelKey, Message, Subscription
from sluicegate.apps.pubsub.history import ChannelHistory
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.reasons import CHANNEL_LIMITED
from sluicegate.contracts.request import Request

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


class HistoryPage(NamedTuple):
    """Some messages of a channel. `cut` is the last position that may be missing before them."""

    messages: Sequence[Message]
    cut: int
    newest: int  # of any channel


@final
class PubSub:
    """The channels of all accounts on one node."""

    def __init__(self, history: ChannelHistory, limiter: AccountLimiter, clock: Clock) -> None:
        self.history = history
        self.limiter = limiter
        self.refused: dict[str, int] = {}
        self._clock = clock

    async def publish(self, account: str, name: str, data: object) -> Message:
        """Accept a message, durably; raise `Refused` for one that a limit does not let in."""
        key = _key(account, name)
        try:
            channel = self.history.channel_to_publish(key)
            permit = self._admit(channel)
        except Refused as refused:
            self.history.release(key)
            reason = refused.decision.reason
            assert reason is not None
            self.refused[reason.name] = self.refused.get(reason.name, 0) + 1
            raise
        accepted = False
        try:
            message = await self.history.append(channel, data, self._clock.now_us())
            accepted = True
        finally:
            outcome = Outcome.SUCCESS if accepted else Outcome.IGNORE
            permit.end(outcome, self._clock.now_us())
        return message

    def subscribe(self, account: str, name: str, after: int) -> Subscription:
        """Read along, from behind a position on."""
        channel = self.history.channel(_key(account, name))
        return channel.subscribe(after, self.history.newest)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Read no more."""
        subscription.close()
        self.history.release(subscription.channel.key)

    def read(self, account: str, name: str, after: int, count: int) -> HistoryPage:
        """Read at most `count` messages after a position."""
        history = self.history
        channel = history.channels.get(_key(account, name))
        if channel is None:
            return HistoryPage((), history.cut, history.newest)
        return HistoryPage(channel.after(after, count), channel.cut, history.newest)

    def _admit(self, channel: Channel) -> Permit:
        now_us = self._clock.now_us()
        account = channel.key.account
        cost = 1 + len(channel.subscribers)
        admission = self.limiter.admit(Request(account, caller=account, cost=cost), now_us)
        if isinstance(admission, Decision):
            raise Refused(admission)
        if channel.bucket is not None:
            verdict = channel.bucket.take(1, now_us)
            if not verdict.allowed:
                admission.end(Outcome.IGNORE, now_us)
                retry_us, reset_us = verdict.retry_after_us, verdict.reset_after_us
                raise Refused(Decision(False, 0, retry_us, reset_us, CHANNEL_LIMITED, "channel"))
        return admission


def _key(account: str, name: str) -> ChannelKey:
    if not _NAME.fullmatch(name):
        raise BadValue("channel", name, "name it by 1 to 128 of A-Z a-z 0-9 _ . : -")
    return ChannelKey(account, name)
