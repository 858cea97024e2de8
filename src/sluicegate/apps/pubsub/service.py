"""Service: publish, subscribe and read, each for an account and within its limits.

Only a publish is refused, and the reason says which limit it was: that of the channel, the rate of
the account (`cluster/account_limiter.py`), what it may use up in an hour or a month
(`policies/quota/usage.py`), or the number of channels. It costs one message, and one for each who
is subscribed. What the limits refuse counts as attempted, or the account master would see a rate
that falls with its own refusals, and let go; of an hour and a month it uses up nothing.

In a cluster a channel has one home, and all of that is done there: another node passes on what it
is asked (`nodes.py`). A node refuses by itself what is of an account that is over its rate, or has
used up its hour or month, and counts it as attempted: like every node it hears the fraction to
reject from the account's master, and from the home what a publish costs. What a node passes on is
`here` or nowhere, so nothing goes round in circles.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, final

from sluicegate.apps.pubsub.channel import (
    NOBODY,
    Channel,
    ChannelKey,
    ChannelReading,
    ChannelShare,
    Gap,
    Message,
)
from sluicegate.apps.pubsub.histories import Histories
from sluicegate.apps.pubsub.presence import (
    ENTER,
    LEAVE,
    MEMBER_BYTES,
    PAGE_BYTES,
    UPDATE,
    MembersPage,
    Owner,
    Place,
    Presence,
    PresenceEvent,
)
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, SluicegateError, Unavailable
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.reasons import CHANNEL_LIMITED, HOME_UNAVAILABLE, SUPPRESSED
from sluicegate.contracts.request import Request
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.policies.quota.usage import UsageMeter, UsageWarning

READ_BYTES: Final = 1 << 20  # of a page of history, and one more message
_SECOND_US: Final = 1_000_000
_DEBT_MAX: Final = 1 << 32  # what is wider than the burst passes, and is paid off
HOME_RETRY_US: Final = 1_000_000
FOLLOW_S: Final = 0.1
LEAVE_TRIES: Final = 30
LEAVE_RETRY_S: Final = 1.0
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


class HistoryPage(NamedTuple):
    """Some messages of a channel. `cut` is the last position that may be missing before them."""

    messages: Sequence[Message]
    cut: int
    newest: int  # of any channel
    gap: Gap | None = None  # what is lost to one who asks for what is behind what it knows


class Elsewhere(Protocol):
    """The channels whose home is another node."""

    def home_of(self, key: ChannelKey) -> str:
        """Return the home of a channel; "" if it is here."""
        ...

    def peer(self, home: str) -> object:
        """Return what reads at a home, the same as long as it does."""
        ...

    async def publish(self, home: str, key: ChannelKey, data: object, *, passed: bool) -> int:
        """Publish there; `passed` if this node has held the account to its limit."""
        ...

    def cost_of(self, key: ChannelKey) -> int:
        """Return the cost of a publish there; 0 if unknown."""
        ...

    def subscribe(self, home: str, key: ChannelKey, after: int) -> ChannelReading:
        """Read along."""
        ...

    async def enter(self, home: str, place: Place, data: object, held: int) -> int:
        """Have a member enter there, or be updated."""
        ...

    async def leave(self, home: str, place: Place) -> None:
        """Have a member leave there."""
        ...

    async def members(self, home: str, key: ChannelKey, after: str, bytes_max: int) -> MembersPage:
        """Read a page of the members of a channel there."""
        ...

    async def read(
        self, home: str, key: ChannelKey, after: int, count: int, bytes_max: int
    ) -> HistoryPage:
        """Read."""
        ...

    async def hear_usage(self, account: str) -> None:
        """Hear what an account has used at all nodes."""
        ...


@final
class PubSub:
    """The channels of all accounts on one node."""

    def __init__(
        self,
        histories: Histories,
        limiter: AccountLimiter,
        clock: Clock,
        elsewhere: Elsewhere | None = None,
        usage: UsageMeter | None = None,
        presence: Presence | None = None,
        channel_ratio: int = 0,
        *,
        found: bool = False,
    ) -> None:
        """With `channel_ratio`, a channel alone is held to so many times its account's limit.

        Nodes may be `found`, and not said, and then come and go.
        """
        self.found = found
        self.settled = not found  # it is known who else may be the home of a channel
        self.histories = histories
        self.limiter = limiter
        self.refused: dict[str, int] = {}
        self._clock = clock
        self._elsewhere = elsewhere
        self._usage = usage
        self._presence = Presence() if presence is None else presence
        self._channel_ratio = channel_ratio
        self._ends: set[asyncio.Task[None]] = set()
        self._readings: dict[ChannelReading, object] = {}  # and where each reads
        self._entered: dict[Place, object] = {}  # members, and where they were entered

    def is_node(self, identity: Identity) -> bool:
        """Whether this is another node of the cluster, which speaks for accounts."""
        member = self._elsewhere is not None and identity.name in self.limiter.members
        return member and identity.may(Grant.REPORT)

    def publish(
        self, account: str, name: str, data: object, *, here: bool = False, passed: bool = False
    ) -> Coroutine[Any, Any, int]:
        """Accept a message durably. Await the result; it is the position of the message.

        `Refused` is raised at once where a limit is known here, so a refusal costs no task and no
        hop. With `passed`, another node has held the account to its limit.
        """
        key = _key(account, name)
        if home := self._home_of(key, here=here):
            return self._publish_there(home, key, data, passed=self._hold_here(key))
        return self._keep(key, data, None, *self._let_in(key, None, passed=passed))

    def cost_of(self, account: str, name: str) -> int:
        """Return the cost of a publish in a channel whose home is here."""
        key = _key(account, name)
        history = self.histories.find(key)
        channel = None if history is None else history.channels.get(key)
        return 1 if channel is None else 1 + channel.readers

    def _hold_here(self, key: ChannelKey) -> bool:
        """Hold an account that is over a limit here, before its publish goes to the home.

        Return whether its rate was asked, so that the home counts it no more. While nothing is
        rejected the home counts all, and its fuse stands for all nodes together.
        """
        assert self._elsewhere is not None
        account, now_us = key.account, self._clock.now_us()
        over: Decision | None = None
        if self._usage is not None:
            self._usage.watch(account, now_us)
            over = self._usage.refusal(account, now_us)
        cost = self._elsewhere.cost_of(key)
        suppressed = cost > 0 and self.limiter.is_suppressed(account, now_us)
        if over is None and not suppressed:
            return False
        admission = self.limiter.admit(Request(account, caller=account, cost=cost or 1), now_us)
        refusal = admission if isinstance(admission, Decision) else over
        if refusal is not None:
            self._count(refusal)
            raise Refused(refusal)
        return True

    async def _publish_there(
        self, home: str, key: ChannelKey, data: object, *, passed: bool
    ) -> int:
        assert self._elsewhere is not None
        try:
            return await self._elsewhere.publish(home, key, data, passed=passed)
        except Refused as refused:
            if refused.decision.reason is SUPPRESSED:
                self.limiter.watch(key.account, self._clock.now_us())
            raise

    async def enter(
        self, place: Place, data: object, owner: Owner, held: int = 0, *, here: bool = False
    ) -> int:
        """Have a member in a channel, or update its data; return where that is in the order.

        One who enters it again after a break says by `held` where it was, and changes nothing if
        it is there with the same data, or was entered by another since.
        """
        key = _key(*place.key)
        _check_member(place.member)
        text = self._presence.text_of(data)
        home = self._home_of(key, here=here)
        held_bytes = 0
        if home:
            position, held_bytes = await self._enter_there(home, place, data, text, held)
        else:
            current = self._presence.members(key).get(place.member)
            if current is not None and 0 < held < current.position:
                return current.position
            if current is not None and current.data == text:
                position = current.position
            else:
                action = ENTER if current is None else UPDATE
                event = self._presence.reserve(key, action, place.member, text)
                position = await self._accept(key, data, event)
        self._presence.claim(place, owner, held_bytes)
        self._entered[place] = self._where(key)
        if owner.ended:  # meanwhile
            self.end_owner(owner)
        return position

    async def _enter_there(
        self, home: str, place: Place, data: object, text: bytes, held: int
    ) -> tuple[int, int]:
        """Enter a member at another node; return its position, and the bytes held here."""
        assert self._elsewhere is not None
        account, size = place.key.account, len(place.member) + len(text) + MEMBER_BYTES
        self._presence.hold(account, size)
        try:
            return await self._elsewhere.enter(home, place, data, held), size
        except BaseException:
            self._presence.let_go(account, size)
            raise

    async def leave(self, place: Place, owner: Owner | None, *, here: bool = False) -> None:
        """Have a member leave, if `owner` is who entered it here last; it is never refused."""
        key = _key(*place.key)
        _check_member(place.member)
        if owner is not None and self._presence.owner(place) is not owner:
            return
        self._presence.disown(place)
        if home := self._home_of(key, here=here):
            assert self._elsewhere is not None
            await self._elsewhere.leave(home, place)
        elif place.member in self._presence.members(key):
            await self._accept(key, None, PresenceEvent(LEAVE, place.member))

    async def members(
        self,
        account: str,
        name: str,
        after: str = "",
        bytes_max: int = PAGE_BYTES,
        *,
        here: bool = False,
    ) -> MembersPage:
        """Return a page of the members of a channel, after a name."""
        key = _key(account, name)
        if home := self._home_of(key, here=here):
            assert self._elsewhere is not None
            return await self._elsewhere.members(home, key, after, bytes_max)
        return self._presence.page(key, after, bytes_max)

    def end_owner(self, owner: Owner) -> None:
        """Who entered members is gone, and they go too; unless another enters them in time."""
        places = self._presence.end(owner)
        if places:
            self._start(self._leave_all(places, owner, owner.grace_s))

    def end_unowned(self, grace_s: float) -> None:
        """After a start, have the members leave that nobody enters again in time."""
        places = list(self._presence.unowned())
        if places:
            self._start(self._leave_all(places, None, grace_s))

    async def close(self) -> None:
        """Have no more members leave: whose owners are gone, the next start knows."""
        for task in self._ends:
            task.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _leave_all(
        self, places: Sequence[Place], owner: Owner | None, grace_s: float
    ) -> None:
        if grace_s:
            await asyncio.sleep(grace_s)
        for place in places:
            for _ in range(LEAVE_TRIES):
                if self._presence.owner(place) is not owner:
                    break
                try:
                    await self.leave(place, owner)
                    break
                except (Refused, Unavailable):
                    if owner is not None:
                        self._presence.claim(place, owner)
                    await asyncio.sleep(LEAVE_RETRY_S)

    async def _accept(self, key: ChannelKey, data: object, event: PresenceEvent) -> int:
        """Keep what a member did, if all limits let it in."""
        try:
            let_in = self._let_in(key, event)
        except BaseException:
            self._presence.release(key, event)
            raise
        return await self._keep(key, data, event, *let_in)

    async def _keep(
        self,
        key: ChannelKey,
        data: object,
        event: PresenceEvent | None,
        channel: Channel,
        cost: int,
        permit: Permit | None,
    ) -> int:
        """Keep a message, or what a member did, that the limits have let in."""
        accepted = False
        try:
            try:
                now_us = self._clock.now_us()
                kept = self.histories.of(key).append(channel, data, now_us, cost, event)
            except BaseException:
                if event is not None:
                    self._presence.release(key, event)
                raise
            message = await kept
            accepted = True
        finally:
            if permit is not None:
                outcome = Outcome.SUCCESS if accepted else Outcome.IGNORE
                permit.end(outcome, self._clock.now_us())
        return message.position

    def _let_in(
        self, key: ChannelKey, event: PresenceEvent | None, *, passed: bool = False
    ) -> tuple[Channel, int, Permit | None]:
        history = self.histories.of(key)
        leaving = event is not None and event.action == LEAVE
        try:
            channel = history.channel(key) if leaving else self._channel_to_publish(key)
            cost = 1 + channel.readers
            if leaving:
                permit = self._charge_leave(channel, cost)
            else:
                permit = self._admit(channel, cost, passed=passed)
        except Refused as refused:
            history.release(key)
            self._count(refused.decision)
            raise
        return channel, cost, permit

    def _charge_leave(self, channel: Channel, cost: int) -> Permit | None:
        """It counts as attempted, and is let in even where a publish would not be."""
        account = channel.key.account
        request = Request(account, caller=account, cost=cost)
        admission = self.limiter.admit(request, self._clock.now_us())
        return None if isinstance(admission, Decision) else admission

    def subscribe(
        self, account: str, name: str, after: int, *, here: bool = False
    ) -> ChannelReading:
        """Read along, from behind a position on."""
        key = _key(account, name)
        if home := self._home_of(key, here=here):
            assert self._elsewhere is not None
            reading = self._elsewhere.subscribe(home, key, after)
            self._readings[reading] = self._elsewhere.peer(home)
            return reading
        history = self.histories.of(key)
        foreign = history.foreign(after)
        local = history.channel(key).subscribe(after, history.newest, foreign=foreign)
        self._readings[local] = history
        return local

    def move_readings(self) -> None:
        """Tell who reads, or has entered members, where a channel's home is no more."""
        for reading, where in list(self._readings.items()):
            now = self._where(reading.key)
            if now is not None and now is not where:
                reading.wake.move()
        owned = dict(self._presence.owned())
        self._entered = {place: at for place, at in self._entered.items() if place in owned}
        moved = [place for place, at in self._entered.items() if self._where(place.key) is not at]
        for owner in {owned[place] for place in moved}:
            owner.move()

    def _where(self, key: ChannelKey) -> object:
        """Who has a channel: a history here, or another node; None for a moment, or for good."""
        home = "" if self._elsewhere is None else self._elsewhere.home_of(key)
        if home and self._elsewhere is not None:
            return self._elsewhere.peer(home)
        return self.histories.find(key)

    async def follow(self, reading: ChannelReading) -> ChannelReading:
        """Read on at a channel's new home, from where one is, when that is there."""
        reading.wake = NOBODY
        account, name = reading.key
        while True:
            try:
                new = self.subscribe(account, name, reading.position)
                try:
                    while (begun := new.begun) is not None:
                        await begun
                except BaseException:
                    self.unsubscribe(new)
                    raise
            except SluicegateError:  # it is none yet, or does not know this node yet
                await asyncio.sleep(FOLLOW_S)
            else:
                return new

    def unsubscribe(self, reading: ChannelReading) -> None:
        """Read no more."""
        reading.close()
        self._readings.pop(reading, None)
        history = self.histories.find(reading.key)
        if history is not None:
            history.release(reading.key)

    async def read(
        self,
        account: str,
        name: str,
        after: int,
        count: int,
        *,
        bytes_max: int = READ_BYTES,
        here: bool = False,
    ) -> HistoryPage:
        """Read at most `count` messages after a position, fewer if they reach so many bytes."""
        key = _key(account, name)
        if home := self._home_of(key, here=here):
            assert self._elsewhere is not None
            return await self._elsewhere.read(home, key, after, count, bytes_max)
        history = self.histories.of(key)
        channel = history.channels.get(key) or history.empty_channel(key)
        newest, foreign = history.newest, history.foreign(after)
        index = channel.index_behind(after, newest, foreign=foreign)
        return HistoryPage(
            channel.read(index, count, bytes_max),
            channel.cut,
            newest,
            channel.gap_behind(after, newest, foreign=foreign),
        )

    def _take_share(self, channel: Channel, cost: int, now_us: int) -> None:
        """Hold a channel to its account's limit by itself, before any master knows of it."""
        limit = self.limiter.limit_of(channel.key.account)
        if limit is None:
            return
        ratio = self._channel_ratio
        per_s, burst = ratio * limit.per_s, ratio * max(limit.burst, 1)
        if limit.burst < 0:
            burst = per_s
        share = channel.share
        if share is None or (share.per_s, share.burst) != (per_s, burst):
            bucket = TokenBucket(per_s, _SECOND_US, burst, debt_max=_DEBT_MAX)
            share = channel.share = ChannelShare(per_s, burst, bucket)
        verdict = share.bucket.take(cost, now_us)
        if not verdict.allowed:
            retry_us, reset_us = verdict.retry_after_us, verdict.reset_after_us
            raise Refused(Decision(False, 0, retry_us, reset_us, SUPPRESSED, "channel_share"))

    def _home_of(self, key: ChannelKey, *, here: bool) -> str:
        home = "" if self._elsewhere is None else self._elsewhere.home_of(key)
        if home and here and not self.found:
            detail = f"its home is {home}; start all nodes with the same --members and --event-log"
            raise Unavailable("the channel", detail)
        # Nodes that find each other may disagree for a moment, and a home may not be one yet.
        nowhere = not home and self.histories.find(key) is None
        if (home and here) or nowhere or not self.settled:
            decision = Decision(False, 0, HOME_RETRY_US, HOME_RETRY_US, HOME_UNAVAILABLE, "home")
            self._count(decision)
            raise Refused(decision)
        return home

    def check_connection(self, account: str) -> None:
        """`Refused` if an account may have no connection more."""
        if self._usage is not None:
            refusal = self._usage.connect_refusal(account, self._clock.now_us())
            if refusal is not None:
                self._count(refusal)
                raise Refused(refusal)

    def connect(self, account: str) -> None:
        """Count one more connection of an account."""
        if self._usage is not None:
            self._usage.connect(account, self._clock.now_us())

    def disconnect(self, account: str) -> None:
        """One has ended."""
        if self._usage is not None:
            self._usage.disconnect(account)

    def warnings(self, account: str) -> list[UsageWarning]:
        """What an account has nearly, or more than, used up."""
        return [] if self._usage is None else self._usage.warnings(account, self._clock.now_us())

    async def usage_everywhere(self, account: str) -> Mapping[str, object]:
        """Return the usage of an account at all nodes, and its limits."""
        if self._elsewhere is not None:
            await self._elsewhere.hear_usage(account)
        return self.usage(account)

    def usage(self, account: str) -> Mapping[str, object]:
        """Return the usage of an account that this node knows, and its limits."""
        return {} if self._usage is None else self._usage.view(account, self._clock.now_us())

    def _count(self, refusal: Decision) -> None:
        reason = refusal.reason
        assert reason is not None
        self.refused[reason.name] = self.refused.get(reason.name, 0) + 1

    def _channel_to_publish(self, key: ChannelKey) -> Channel:
        if self._usage is not None and not self.histories.of(key).is_written(key):
            refusal = self._usage.open_refusal(key.account)
            if refusal is not None:
                raise Refused(refusal)
        return self.histories.of(key).channel_to_publish(key)

    def _admit(self, channel: Channel, cost: int, *, passed: bool) -> Permit | None:
        now_us = self._clock.now_us()
        account = channel.key.account
        permit: Permit | None = None
        if not passed:
            admission = self.limiter.admit(Request(account, caller=account, cost=cost), now_us)
            if isinstance(admission, Decision):
                raise Refused(admission)
            permit = admission
        try:
            self._admit_further(channel, cost, now_us)
        except Refused:
            if permit is not None:
                permit.end(Outcome.IGNORE, now_us)
            raise
        return permit

    def _admit_further(self, channel: Channel, cost: int, now_us: int) -> None:
        """Refuse what the account's rate lets in, and its other limits and the channel's do not."""
        if self._usage is not None:
            refusal = self._usage.refusal(channel.key.account, now_us)
            if refusal is not None:
                raise Refused(refusal)
        if self._channel_ratio:
            self._take_share(channel, cost, now_us)
        if channel.bucket is not None:
            verdict = channel.bucket.take(1, now_us)
            if not verdict.allowed:
                retry_us, reset_us = verdict.retry_after_us, verdict.reset_after_us
                raise Refused(Decision(False, 0, retry_us, reset_us, CHANNEL_LIMITED, "channel"))


def _check_member(member: str) -> None:
    if not _NAME.fullmatch(member):
        raise BadValue("member", member, "name it by 1 to 128 of A-Z a-z 0-9 _ . : -")


def _key(account: str, name: str) -> ChannelKey:
    if not _NAME.fullmatch(name):
        raise BadValue("channel", name, "name it by 1 to 128 of A-Z a-z 0-9 _ . : -")
    return ChannelKey(account, name)
