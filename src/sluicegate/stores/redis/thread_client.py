"""Thread client: one server, for threads that do their own input and output.

Threads that ask at one moment share a round trip. The first to come sends for all who wait, in one
write, and hands each its answer; who comes meanwhile sleeps, and one of those sends next (flat
combining: Hendler, Incze, Shavit, Tzafrir, 2010). So no thread of ours stands between a caller and
its server, and nobody waits for more than the trip under way and one more.

`run` is all the loop there is: it steps an operation of a store under a lock, waits for what the
operation waits for, and steps on. Input and output are outside the lock, and are one thread's at a
time. Nothing runs in the background, so who finds the server gone pays for finding that out; the
breaker spares all others, and lets one in now and then, which connects again if it can.

What timed out may have been done, and is never sent twice. Its late answer is read and dropped by
the next trip; a server that says nothing for `silence_us_max` loses its connection. A child after
a fork makes a client of its own, and only closes its copy of the socket (`abandon`).
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from threading import Lock
from typing import Any, Final, TypeVar, cast, final

import hiredis

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.observer import Observer
from sluicegate.kernels.breaker import CLOSED, FAILURE, IGNORED, REFUSED, SUCCESS, Circuit
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.connection import Reply, ReplyReceiver
from sluicegate.stores.redis.node import BREAKER_DEFAULT, UNAVAILABLE
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import RedisSettings
from sluicegate.stores.redis.thread_connection import MORE, ThreadConnection
from sluicegate.stores.redis.thread_waiter import SendTurn, ThreadWaiter
from sluicegate.wire.resp import (
    ASK,
    MOVED,
    NO_SCRIPT,
    NOT_MASTER,
    NOT_NOW,
    ErrorReply,
    Part,
    command,
)

T = TypeVar("T")
# Of the trips of one call alone, which are the most, a sample shows the path; of others, each.
SAMPLE_EACH: Final = 16
_log: Final = logging.getLogger("sluicegate.redis")


@final
class _ThreadCall:
    """One question on its way: its bytes, who waits, and what a second attempt would need."""

    __slots__ = ("payload", "receiver", "resends", "script")

    def __init__(self, receiver: ReplyReceiver, payload: bytes, script: Script | None) -> None:
        self.receiver = receiver
        self.payload = payload
        self.script = script
        self.resends = 0

    def fail(self, error: SluicegateError) -> None:
        """End it with an error, if that is still waited for."""
        if not self.receiver.done():
            self.receiver.set_exception(error)


@final
class ThreadClient:
    """A client and a loop as far as a store uses them; any thread may `run` a store's work.

    Make one for a process.
    """

    __slots__ = (
        "_asleep",
        "_breaker",
        "_clock",
        "_closed",
        "_connection",
        "_crowded",
        "_draw",
        "_due",
        "_last_failure",
        "_lock",
        "_outbox",
        "_path",
        "_patience_s",
        "_settings",
        "_trips",
        "_turn",
        "what",
    )

    def __init__(self, settings: RedisSettings, chance: Chance, clock: Callable[[], int]) -> None:
        self._connection = ThreadConnection(settings, clock)  # of who sends
        self.what = self._connection.what
        self._settings = settings
        self._path = PathTimeout(settings.timeout_us)
        self._trips = 0  # of one call alone
        self._draw = chance.draw
        self._clock = clock
        self._breaker = Circuit(BREAKER_DEFAULT)
        # Of who sends for us: one trip that is under way, one of ours, and a connection.
        self._patience_s = (2 * settings.timeout_us_max + settings.connect_timeout_us) / 1e6
        self._lock = Lock()  # for the steps of operations, and for what they leave here
        self._due: list[Callable[[], object]] = []
        self._outbox: list[_ThreadCall] = []
        self._turn = SendTurn()
        self._asleep: deque[ThreadWaiter] = deque()
        self._crowded = False  # others slept when the last trip began
        self._last_failure = "it was never reached"
        self._closed = False

    # For threads.

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Step an operation of a store to its end; its result, or what it raised."""
        while True:
            with self._lock:
                try:
                    waiter: ThreadWaiter = operation.send(None)
                except StopIteration as done:
                    return cast("T", done.value)
            self._wait(waiter)

    def begin_alone(self, sender: object) -> bool:
        """Return whether nobody else asks and all is well; then `end_trip` must follow."""
        if self._crowded or self._outbox or self._due or not self._turn.take(sender):
            return False
        if self._breaker.state == CLOSED and not self._closed and self._connection.is_fresh():
            return True
        self.end_trip(sender)
        return False

    def ask_alone(self, payload: bytes, script: Script, observer: Observer | None) -> Any:
        """Make one round trip for this one call; its answer, or the failure is raised."""
        connection, began_us = self._connection, self._clock()
        sent, reply = False, MORE
        failure: Exception | None = None
        try:
            connection.send(payload)
            sent = True
            reply = connection.reply_at_once()
        except (OSError, hiredis.ProtocolError) as error:
            failure = error
        except BaseException:  # an interrupt: the answer would be taken for another's
            connection.close()
            raise
        if type(reply) is list:
            ended_us = connection.replied_us = self._clock()
            breaker = self._breaker
            breaker.leave(breaker.generation, SUCCESS, ended_us - began_us, ended_us, 0.0)
            self._trips += 1
            if self._trips % SAMPLE_EACH == 0:
                self._path.observe(ended_us - began_us, 0, ended_us)
                connection.wait_at_most(self._path.look(ended_us))
        else:
            # The answer is not whole, or is an error, or there is none: all that is as for others.
            waiter = ThreadWaiter()
            self._carry([_ThreadCall(waiter, payload, script)], sent, failure)
            problem = waiter.exception()
            if problem is not None:
                if observer is not None:
                    observer.record_round_trip(1, began_us, self._clock(), str(problem))
                raise problem
            reply = waiter.result()
        if observer is not None:
            observer.record_round_trip(1, began_us, self._clock(), "")
        return reply

    def end_trip(self, sender: object) -> None:
        """Let others send, if it was this one's turn; to do it twice does no harm."""
        self._turn.give_back(sender)
        asleep = self._asleep
        while asleep:
            try:
                waiter = asleep.popleft()
            except IndexError:  # another thread was quicker
                return
            if not waiter.done():
                waiter.wake()
                return

    @property
    def paths(self) -> Sequence[PathTimeout]:
        """The time-out of the server."""
        return (self._path,)

    def unavailable_reason(self, slot: int = -1) -> str:
        """Return why a call would fail at once, or ""."""
        if self._closed:
            return self._last_failure
        return self._last_failure if self._breaker.retry_after_us(self._clock()) else ""

    # As a client, and as the loop that its batches know.

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new answer to wait for."""
        return cast("asyncio.Future[Any]", ThreadWaiter())

    def call_soon(self, callback: Callable[[], object], /) -> None:
        """Have `callback` called before the next trip."""
        self._due.append(callback)

    def call_at(self, when: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        """Refuse: nothing here happens by itself."""
        raise NotImplementedError

    def time(self) -> float:
        """Return the instant in seconds."""
        return self._clock() / 1e6

    def send_script(
        self,
        receiver: ReplyReceiver,
        script: Script,
        keys: Sequence[bytes | str],
        args: Sequence[Part],
        slot: int,
    ) -> None:
        """Run the script with the next trip, and hand the reply to `receiver`."""
        self._send(_ThreadCall(receiver, script.call(keys, args), script))

    def call(self, *parts: Part, key: bytes | str | None = None) -> asyncio.Future[Any]:
        """Send one command with the next trip."""
        waiter = self.create_future()
        self._send(_ThreadCall(waiter, command(*parts), None))
        return waiter

    def run_script(
        self, script: Script, keys: Sequence[bytes | str], args: Sequence[Part] = ()
    ) -> asyncio.Future[Any]:
        """Run the script with the next trip."""
        waiter = self.create_future()
        self._send(_ThreadCall(waiter, script.call(keys, args), script))
        return waiter

    def push(self) -> None:
        """Nothing: whoever waits sends."""

    async def connect(self) -> None:
        """Return when connected, or raise what prevents it."""
        await self.call("PING")

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and close the socket."""
        self._closed = True
        self._last_failure = "the client is closed"
        outbox, self._outbox = self._outbox, []
        for call in outbox:
            call.fail(Unavailable(self.what, self._last_failure))
        self._connection.shut_down()
        sender = object()
        if self._turn.take(sender):
            self._connection.close()
            self._turn.give_back(sender)

    def abandon(self) -> None:
        """In a child, after a fork: close this process's copy of the socket, and nothing else."""
        self._connection.abandon()

    def __del__(self) -> None:
        self.abandon()

    # Trips.

    def _send(self, call: _ThreadCall) -> None:
        if self._closed:
            call.fail(Unavailable(self.what, self._last_failure))
        elif len(self._outbox) >= self._settings.inflight_max:
            most = self._settings.inflight_max
            call.fail(Unavailable(self.what, f"{most} calls wait already (inflight_max)"))
        else:
            self._outbox.append(call)

    def _wait(self, waiter: ThreadWaiter) -> None:
        """Return when the answer has come; send for all who wait, unless somebody does."""
        try:
            while not waiter.done():
                if self._turn.take(waiter):
                    try:
                        self._trip()
                    finally:
                        self.end_trip(waiter)
                    continue
                waiter.prepare()
                self._asleep.append(waiter)
                # Whoever sends wakes a sleeper after the turn is free; if that was before this one
                # was among them, it is free now.
                if waiter.done() or self._turn.is_free():
                    continue
                if not waiter.sleep(self._patience_s) and not self._turn.is_free():
                    reason = f"no answer in {self._patience_s * 1e3:g} ms"
                    waiter.set_exception(Unavailable(self.what, reason))
                    self.end_trip(waiter)  # others may sleep behind this one
        except BaseException:
            # An interrupt may have come between any two steps, also while the turn was given back.
            waiter.abandon()
            self.end_trip(waiter)
            raise

    def _trip(self) -> None:
        """One round trip for all who have asked."""
        if self._crowded:
            # Those who were just answered may ask again: let another thread run first.
            select.select((), (), (), 0)
        calls: list[_ThreadCall] = []
        try:
            with self._lock:
                while self._due:
                    try:
                        self._due[0]()
                    except Exception:
                        del self._due[0]  # or it would fail every trip from now on
                        raise
                    del self._due[0]  # not before it is done: it may be interrupted
                calls = [call for call in self._outbox if not call.receiver.done()]
                self._crowded = len(self._asleep) > 0
                self._outbox = []
            if calls:
                self._carry(calls)
        except BaseException:
            _fail(calls, Unavailable(self.what, "the call was interrupted"))
            raise

    def _carry(
        self, calls: Sequence[_ThreadCall], sent: bool = False, error: Exception | None = None
    ) -> None:
        """Make a round trip for these, as far as the breaker lets it; each of them ends.

        They may have been `sent` already, and it may have failed by now.
        """
        breaker, began_us = self._breaker, self._clock()
        generation = breaker.enter(began_us)
        if generation == REFUSED:
            _fail(calls, Unavailable(self.what, f"{self._last_failure}; calls are held back"))
            return
        outcome = IGNORED  # an interrupt says nothing of the server
        try:
            failure = self._exchange(calls, sent, error)
            outcome = FAILURE if failure else SUCCESS
        finally:
            ended_us = self._clock()
            if outcome == IGNORED:
                self._connection.close()
            breaker.leave(generation, outcome, ended_us - began_us, ended_us, self._draw())
            if outcome == FAILURE and not self._connection.open:
                breaker.trip(ended_us, self._draw())  # who comes next would find the same

    def _exchange(self, calls: Sequence[_ThreadCall], sent: bool, error: Exception | None) -> str:
        """Send the calls, and hand each its answer; why it failed, or ""."""
        failure = ""
        try:
            if error is not None and not (sent and _is_late(error)):
                raise error  # noqa: TRY301  # handled with the other failures
            if not sent:
                self._connection.make_ready()
            while calls:
                failure, calls = self._ask(calls, sent)
                sent = False
        except Unavailable as problem:
            failure = problem.detail
        except hiredis.ProtocolError as problem:
            self._connection.close()
            failure = f"it does not speak RESP; is this the port of a Redis? ({problem})"
        except OSError as problem:
            if _is_late(problem):
                failure = f"no answer in {self._connection.timeout_us / 1e3:g} ms"
            else:
                failure = f"the connection broke ({problem.strerror or problem})"
            if not (_is_late(problem) and self._connection.owed):
                self._connection.close()
        except SluicegateError:
            raise  # of a setting
        except Exception as problem:
            # After any exception the replies can no longer be matched to their calls.
            self._connection.close()
            failure = f"reading its answers failed ({problem!r})"
            _log.exception("%s: the connection was ended", self.what)
        else:
            return failure
        self._last_failure = self._last_failure if self._closed else failure
        _fail(calls, Unavailable(self.what, self._last_failure))
        return failure

    def _ask(self, calls: Sequence[_ThreadCall], sent: bool) -> tuple[str, list[_ThreadCall]]:
        """One write and its answers; what failed, and the calls that are to be sent again."""
        connection, failure = self._connection, ""
        began_us = self._clock()
        timeout_us = self._path.look(began_us)
        connection.wait_at_most(timeout_us)
        until_us = began_us + timeout_us
        if not sent:
            connection.send(b"".join([call.payload for call in calls]))
        replies: list[Reply] = []
        try:
            while len(replies) < len(calls):
                reply = connection.reply(until_us)
                if connection.owed:
                    connection.owed -= 1
                    self._observe(connection.owed_us, 1)
                    continue
                replies.append(reply)
            connection.check_guard(replies, until_us)
        except (TimeoutError, BlockingIOError):
            if not connection.owed:
                connection.owed_us = began_us
            connection.owed += len(calls) - len(replies) + 1  # and the guard's
            if self._clock() - connection.replied_us > self._settings.silence_us_max:
                self._connection.close()
            raise
        self._observe(began_us, 0)
        again: list[_ThreadCall] = []
        scripts: set[str] = set()
        for call, reply in zip(calls, replies, strict=True):
            if type(reply) is not ErrorReply:
                if not call.receiver.done():
                    call.receiver.set_result(reply)
            elif reply.kind == NO_SCRIPT and self._may_resend(call):
                script = call.script
                if script is not None and script.sha not in scripts:
                    scripts.add(script.sha)
                    again.append(_ThreadCall(ThreadWaiter(), script.load, None))
                again.append(call)
            else:
                failure = self._refuse(call, reply) or failure
        return failure, again

    def _observe(self, sent_us: int, late: int) -> None:
        now_us = self._clock()
        self._path.observe(now_us - sent_us, late, now_us)

    def _may_resend(self, call: _ThreadCall) -> bool:
        call.resends += 1
        return call.script is not None and call.resends <= self._settings.resends_max

    def _refuse(self, call: _ThreadCall, error: ErrorReply) -> str:
        """Fail a call that was answered with an error; what that says of the server, or ""."""
        kind, text = error.kind, str(error)
        if kind in (MOVED, ASK):
            text = "it is a node of a cluster; say redis+cluster:// in the URL"
            call.fail(Unavailable(self.what, text))
            return ""
        call.fail(error if kind not in UNAVAILABLE else Unavailable(self.what, text))
        if kind not in (NOT_NOW, NOT_MASTER):
            return ""
        self._last_failure = text
        return text


def _is_late(error: Exception) -> bool:
    return isinstance(error, TimeoutError | BlockingIOError)


def _fail(calls: Sequence[_ThreadCall], error: Unavailable) -> None:
    for call in calls:
        call.fail(Unavailable(error.what, error.detail))
