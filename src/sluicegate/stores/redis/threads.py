"""Threads' store: limits kept by one Redis, for callers that wait for their answers themselves.

Its coroutines never suspend: whoever steps one does the input and output, or waits for another
thread that does. A thread alone, which is most of them, asks without the detour over a batch: all
of its command but the key is kept from the last time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.stores.redis.batch import Disagreement
from sluicegate.stores.redis.counters import RedisCounter
from sluicegate.stores.redis.errors import as_unavailable
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import RedisSettings
from sluicegate.stores.redis.store import PREFIX_DEFAULT, RedisStore
from sluicegate.stores.redis.thread_client import ThreadClient
from sluicegate.wire.resp import arguments, head

COMMANDS_MAX: Final = 4_096  # limits and costs whose commands are kept


@final
class RedisThreads:
    """A `contracts.store.Store` for all threads of a process; `abandon` it in a child."""

    __slots__ = ("_client", "_commands", "_counters", "_observer", "_store", "what")

    def __init__(
        self,
        settings: RedisSettings,
        chance: Chance,
        clock: Callable[[], int],
        *,
        prefix: str = PREFIX_DEFAULT,
        observer: Observer | None = None,
    ) -> None:
        self._client = ThreadClient(settings, chance, clock)
        self._store = RedisStore(
            settings, chance, prefix=prefix, observer=observer, clock=clock, client=self._client
        )
        self._observer = observer
        # For who asks alone; nobody else does meanwhile.
        self._counters: dict[str, RedisCounter] = {}
        self._commands: dict[tuple[RedisCounter, int, bool], tuple[Script, bytes, bytes]] = {}
        self.what = self._store.what

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        if len(charges) == 1 and not count_refused:
            ruling = self._take_alone(charges[0], keep)
            if ruling is not None:
                return ruling
        return self._client.run(self._store.take(charges, keep=keep, count_refused=count_refused))

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        return self._client.run(self._store.take_some(charge, ladder))

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken at `taken_us`, by the server's clock; None is now."""
        self._client.run(self._store.settle(charges, taken_us))

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what each charge's key has taken."""
        self._client.run(self._store.reset(charges))

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and close the socket."""
        self._client.run(self._store.close())

    def abandon(self) -> None:
        """In a child, after a fork: close this process's copy of the socket, and nothing else."""
        self._client.abandon()

    def _take_alone(self, charge: Charge, keep: bool) -> Ruling | None:
        """One charge of one limit; None if others ask, or its kind has no script of its own."""
        client, sender = self._client, object()
        try:
            if not client.begin_alone(sender):
                return None
            try:
                return self._ask_alone(charge, keep)
            finally:
                client.end_trip(sender)
        except BaseException:
            client.end_trip(sender)  # an interrupt may have come at its beginning
            raise

    def _ask_alone(self, charge: Charge, keep: bool) -> Ruling | None:
        rule_id, limit, key, cost = charge
        counter = self._counters.get(rule_id)
        if counter is None or (counter.limit is not limit and counter.limit != limit):
            counter = self._counters[rule_id] = self._store.counter(rule_id, limit)
            if len(self._counters) > COMMANDS_MAX:
                self._counters = {rule_id: counter}
        command = self._commands.get((counter, cost, keep))
        if command is None:
            if cost < 0 or not counter.script or self._store.batches.now:
                return None
            if len(self._commands) >= COMMANDS_MAX:
                self._commands = {}
            command = self._commands[counter, cost, keep] = self._command(counter, cost, keep)
        script, before, after = command
        name = counter.key(key)
        payload = b"%b$%d\r\n%b%b" % (before, len(name), name, after)
        reply = self._client.ask_alone(payload, script, self._observer)
        now_us: int = reply[0]
        decision = counter.decide(reply, 1, now_us, cost)
        if decision.allowed is not (reply[1] >= 0):
            raise as_unavailable(Disagreement)
        return Ruling(now_us, [decision])

    def _command(self, counter: RedisCounter, cost: int, keep: bool) -> tuple[Script, bytes, bytes]:
        """What stands before and behind the key."""
        script = self._store.scripts[counter.script]
        words = (b"", b"1" if keep else b"", 1, b"", *counter.lane(cost))
        return (
            script,
            head(4 + len(words), "EVALSHA", script.sha, 1),
            b"\r\n" + arguments(words),
        )
