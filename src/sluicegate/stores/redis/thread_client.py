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
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, TypeVar, cast, final

import hiredis

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.observer import Observer
from sluicegate.kernels.breaker import CLOSED, FAILURE, IGNORED, REFUSED, SUCCESS, Circuit
from sluicegate.stores.redis.connection import (
    ReplyReceiver,
    connect_error,
    greeting,
    keep_alive,
    tls_context,
)
from sluicegate.stores.redis.node import BREAKER_DEFAULT, UNAVAILABLE
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import RedisSettings
from sluicegate.stores.redis.thread_waiter import ThreadWaiter
from sluicegate.wire.resp import (
    ASK,
    MOVED,
    NO_SCRIPT,
    NOT_MASTER,
    NOT_NOW,
    ErrorReply,
    Part,
    command,
    error_reply,
)

T = TypeVar("T")

# A connection takes some round trips where a call takes one. The first connection of all has the
# whole `connect_timeout_us`; later ones are made while somebody waits for an answer.
CONNECT_TRIPS: Final = 4
IDLE_US: Final = 10_000  # after so long a connection is looked at before it is used
_READ_BYTES: Final = 65_536
_MORE: Final = object()
_PLAIN_SOCKET: Final = socket.socket if socket.socket.__module__ == "socket" else None


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
        "_attempted",
        "_breaker",
        "_clock",
        "_closed",
        "_crowded",
        "_draw",
        "_due",
        "_endpoint",
        "_last_failure",
        "_lock",
        "_outbox",
        "_owed",
        "_patience_s",
        "_reader",
        "_replied_us",
        "_sending",
        "_settings",
        "_socket",
        "_timeout_s",
        "_tls",
        "_unread",
        "_waits_in_kernel",
        "what",
    )

    def __init__(self, settings: RedisSettings, chance: Chance, clock: Callable[[], int]) -> None:
        self._endpoint = settings.endpoints[0]
        self.what = f"{settings.kind} at {self._endpoint}"
        self._settings = settings
        self._draw = chance.draw
        self._clock = clock
        self._breaker = Circuit(BREAKER_DEFAULT)
        self._tls: ssl.SSLContext | None = None
        self._timeout_s = settings.timeout_us / 1e6
        # Of who sends for us: one trip that is under way, one of ours, and a connection.
        self._patience_s = 2 * self._timeout_s + settings.connect_timeout_us / 1e6
        self._lock = Lock()  # for the steps of operations, and for what they leave here
        self._due: list[Callable[[], object]] = []
        self._outbox: list[_ThreadCall] = []
        self._sending = Lock()  # for the socket and all below
        self._asleep: deque[ThreadWaiter] = deque()
        self._crowded = False  # others slept when the last trip began
        self._socket: socket.socket | None = None
        self._reader = _new_reader()
        self._owed = 0  # answers to calls that have timed out
        self._unread: Any = _MORE  # a reply that was read, and is still to be looked at
        self._replied_us = 0
        self._waits_in_kernel = False
        self._attempted = False  # to connect, at least once and to the end
        self._last_failure = "it was never reached"
        self._closed = False

    # For threads.

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Step an operation of a store to its end; its result, or what it raised."""
        lock = self._lock
        while True:
            lock.acquire()
            try:
                waiter: ThreadWaiter = operation.send(None)
            except StopIteration as done:
                return cast("T", done.value)
            finally:
                lock.release()
            self._wait(waiter)

    def begin_alone(self) -> bool:
        """Return whether nobody else asks and all is well; then `end_alone` must follow."""
        if self._crowded or self._outbox or self._due or not self._sending.acquire(blocking=False):
            return False
        sock = self._socket
        well = sock is not None and self._breaker.state == CLOSED and not self._closed
        if well and not self._owed and self._clock() - self._replied_us < IDLE_US:
            return True
        self.end_alone()
        return False

    def ask_alone(self, payload: bytes, script: Script, observer: Observer | None) -> Any:
        """Make one round trip for this one call; its answer, or the failure is raised."""
        sock, reader, began_us = self._socket, self._reader, self._clock()
        assert sock is not None
        sent, reply = False, _MORE
        failure: Exception | None = None
        try:
            sock.sendall(payload)
            sent = True
            reader.feed(sock.recv(_READ_BYTES))
            reply = reader.gets()
        except (OSError, hiredis.ProtocolError) as error:
            failure = error
        except BaseException:  # an interrupt: the answer would be taken for another's
            self._disconnect()
            raise
        if type(reply) is list:
            ended_us = self._replied_us = self._clock()
            breaker = self._breaker
            breaker.leave(breaker.generation, SUCCESS, ended_us - began_us, ended_us, 0.0)
        else:
            # The answer is not whole, or is an error, or there is none: all that is as for others.
            self._unread = reply
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

    def end_alone(self) -> None:
        """Let others send."""
        self._sending.release()
        self._wake_next()

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
        sock = self._socket
        if sock is None:
            return
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)  # wakes who reads from it, and closes it then
        if self._sending.acquire(blocking=False):
            self._disconnect()
            self._sending.release()

    def abandon(self) -> None:
        """In a child, after a fork: close this process's copy of the socket, and nothing else."""
        if self._socket is not None:
            self._socket.close()

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
                if self._sending.acquire(blocking=False):
                    self._send_for_all()
                    continue
                waiter.prepare()
                self._asleep.append(waiter)
                # Whoever sends wakes a sleeper after the lock is released; if that was before
                # this one was among them, the lock is free now.
                if waiter.done() or not self._sending.locked():
                    continue
                if not waiter.sleep(self._patience_s):
                    reason = f"no answer in {self._patience_s * 1e3:g} ms"
                    waiter.set_exception(Unavailable(self.what, reason))
                    self._wake_next()  # it may have been this one's turn to send
        except BaseException:
            waiter.abandon()
            self._wake_next()
            raise

    def _send_for_all(self) -> None:
        if self._crowded:
            # Those who were just answered may ask again: let another thread run first.
            select.select((), (), (), 0)
        try:
            self._trip()
        finally:
            self.end_alone()

    def _wake_next(self) -> None:
        """Have one of those who sleep send for all."""
        asleep = self._asleep
        while asleep:
            try:
                waiter = asleep.popleft()
            except IndexError:  # another thread was quicker
                return
            if not waiter.done():
                waiter.wake()
                return

    def _trip(self) -> None:
        """One round trip for all who have asked."""
        self._lock.acquire()
        try:
            due, self._due = self._due, []
            for callback in due:
                callback()
            calls = [call for call in self._outbox if not call.receiver.done()]
            self._crowded = len(self._asleep) > 0
            self._outbox = []
        finally:
            self._lock.release()
        if calls:
            self._carry(calls)

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
                self._disconnect()
                _fail(calls, Unavailable(self.what, "the call was interrupted"))
            breaker.leave(generation, outcome, ended_us - began_us, ended_us, self._draw())
            if outcome == FAILURE and self._socket is None:
                breaker.trip(ended_us, self._draw())  # who comes next would find the same

    def _exchange(self, calls: Sequence[_ThreadCall], sent: bool, error: Exception | None) -> str:
        """Send the calls, and hand each its answer; why it failed, or ""."""
        failure = ""
        try:
            if error is not None and not (sent and _is_late(error)):
                raise error
            if not sent:
                if self._socket is not None and self._is_stale(self._socket):
                    self._disconnect()
                if self._socket is None:
                    self._connect()
            while calls:
                failure, calls = self._ask(calls, sent)
                sent = False
        except Unavailable as problem:
            failure = problem.detail
        except hiredis.ProtocolError as problem:
            self._disconnect()
            failure = f"it does not speak RESP; is this the port of a Redis? ({problem})"
        except OSError as problem:
            if _is_late(problem):
                failure = f"no answer in {self._settings.timeout_us / 1e3:g} ms"
            else:
                failure = f"the connection broke ({problem.strerror or problem})"
            if not (_is_late(problem) and self._owed):
                self._disconnect()
        else:
            return failure
        self._last_failure = self._last_failure if self._closed else failure
        _fail(calls, Unavailable(self.what, self._last_failure))
        return failure

    def _ask(self, calls: Sequence[_ThreadCall], sent: bool) -> tuple[str, list[_ThreadCall]]:
        """One write and its answers; what failed, and the calls that are to be sent again."""
        sock, failure = self._socket, ""
        assert sock is not None
        until_us = self._clock() + self._settings.timeout_us
        if not sent:
            payloads = [call.payload for call in calls]
            try:
                sock.sendall(payloads[0] if len(payloads) == 1 else b"".join(payloads))
            except OSError:
                self._disconnect()  # nobody knows how much of it has gone
                raise
        again: list[_ThreadCall] = []
        scripts: set[str] = set()
        waiting = deque(calls)
        try:
            while waiting:
                reply = self._reply(until_us)
                if self._owed:
                    self._owed -= 1
                    continue
                call = waiting.popleft()
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
        except (TimeoutError, BlockingIOError):
            self._owed += len(waiting)
            if self._clock() - self._replied_us > self._settings.silence_us_max:
                self._disconnect()
            _fail(again, Unavailable(self.what, "its scripts are not loaded"))
            raise
        return failure, again

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

    # The socket.

    def _reply(self, until_us: int) -> Any:
        reader = self._reader
        reply, self._unread = self._unread, _MORE
        while True:
            if reply is _MORE:
                reply = reader.gets()
            if reply is _MORE:
                if reader.len() > self._settings.reply_bytes_max:
                    self._disconnect()
                    most = self._settings.reply_bytes_max
                    raise Unavailable(self.what, f"a reply is over {most} bytes (reply_bytes_max)")
                reader.feed(self._read(until_us))
            elif type(reply) is not hiredis.PushNotification:
                return reply
            else:
                reply = _MORE

    def _read(self, until_us: int) -> bytes:
        sock = self._socket
        assert sock is not None
        try:
            late = self._clock() > until_us
            data = self._read_now(sock) if late else sock.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError):
            # The program may be what was late: look once more at what has come.
            data = self._read_now(sock)
        if not data:
            raise ConnectionResetError(None, "it was closed")
        self._replied_us = self._clock()
        return data

    def _read_now(self, sock: socket.socket) -> bytes:
        if self._waits_in_kernel:
            return sock.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        sock.settimeout(0)
        try:
            return sock.recv(_READ_BYTES)
        except ssl.SSLWantReadError:
            raise TimeoutError from None
        finally:
            sock.settimeout(self._timeout_s)

    def _set_timeout(self, sock: socket.socket) -> None:
        """Bound each wait: by the kernel, which spares a call of it, if nothing is in between."""
        self._waits_in_kernel = type(sock) is socket.socket and socket.socket is _PLAIN_SOCKET
        if not self._waits_in_kernel:
            sock.settimeout(self._timeout_s)
            return
        seconds, us = divmod(self._settings.timeout_us, 1_000_000)
        sock.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, us))

    def _connect(self) -> None:
        settings, limit_s = self._settings, self._settings.connect_timeout_us / 1e6
        if self._attempted:
            limit_s = min(limit_s, CONNECT_TRIPS * self._timeout_s)
        self._attempted = True
        self._reader, self._owed, self._unread = _new_reader(), 0, _MORE
        self._waits_in_kernel = False
        sock: socket.socket | None = None
        try:
            sock = self._open(limit_s)
            commands = [command(*words) for words in greeting(settings)]
            sock.sendall(b"".join(commands))
            self._socket, until_us = sock, self._clock() + round(limit_s * 1e6)
            for _ in commands:
                reply = self._reply(until_us)
                if type(reply) is ErrorReply:
                    raise reply  # noqa: TRY301  # all that fails here is told in one place
            self._set_timeout(sock)
        except BaseException as error:
            self._socket = None
            if sock is not None:
                sock.close()
            raise connect_error(self.what, error, settings) from None

    def _open(self, limit_s: float) -> socket.socket:
        endpoint = self._endpoint
        if self._settings.tls and self._tls is None:
            self._tls = tls_context(self._settings)
        if endpoint.path:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(limit_s)
                sock.connect(endpoint.path)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((endpoint.host, endpoint.port), limit_s)
        keep_alive(sock)
        return (
            sock
            if self._tls is None
            else self._tls.wrap_socket(sock, server_hostname=endpoint.host)
        )

    def _is_stale(self, sock: socket.socket) -> bool:
        """Return whether a connection that was idle has ended, or says what nobody asked."""
        if self._owed or self._clock() - self._replied_us < IDLE_US:
            return False
        return bool(select.select([sock], [], [], 0)[0])

    def _disconnect(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()


def _new_reader() -> hiredis.Reader:
    return hiredis.Reader(replyError=error_reply, notEnoughData=_MORE)


def _is_late(error: Exception) -> bool:
    return isinstance(error, TimeoutError | BlockingIOError)


def _fail(calls: Sequence[_ThreadCall], error: Unavailable) -> None:
    for call in calls:
        call.fail(Unavailable(error.what, error.detail))
