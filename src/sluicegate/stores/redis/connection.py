"""Connection: one socket, many calls at once, answers in the order of the questions.

Nothing here retries, reconnects or judges; that is the node's work. All calls of one tick of the
event loop leave in one write. What bounds it: `inflight_max` calls without an answer and
`unsent_bytes_max` bytes that the socket has not taken; beyond either a call fails at once.

A call keeps its place in the row whatever becomes of it: one that was cancelled or has timed out
still takes its answer when that comes, so no answer ever reaches the wrong caller. An error reply
fails its call alone. What is not RESP, an answer to no question, or a reply beyond
`reply_bytes_max` ends the connection, since nothing after it could be believed.

RESP says nowhere which call a reply answers. So each write ends with a guard, `PING <text>`, whose
text was never used before, and so does every 32nd call of a large write. Answers are held back
until the guard behind them is answered with its text: a reply too many or too few, whatever its
cause, ends the connection before one answer reaches another caller (decision 36).

An exception in a connection or in a callback of it leaves the queue of calls and the bytes on the
wire out of step. It ends the connection, fails all its calls, and is passed to the exception
handler of the loop.

Time-outs follow the path (`policies/client/path_timeout.py`) and cost one timer a connection. Calls
of one tick share an instant, and the timer looks only at the oldest; it sweeps at most four times
in a time-out, so a call fails between 1 and 1.25 time-outs after its write. A tick in which the
program itself was late is given a chance to read what has come in the meantime before anything is
called late.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, cast, final

import hiredis

from sluicegate.contracts.errors import BadValue, Unanswered, Unavailable
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.wire.resp import ErrorReply, Part, command, error_reply

# What hiredis makes of a reply: None, bool, int, float, bytes, list, set, dict.
Reply: TypeAlias = Any

_MORE: Final = object()
_SWEEPS: Final = 4  # in one time-out
# A time-out is for an answer that does not come, not for one that is on its way: what is more than
# this has as long as a link of 100 Mbit/s needs besides.
_SMALL_BYTES_MAX: Final = 256 << 10
_S_PER_BYTE: Final = 8 / 100e6
_CLOSE_S_MAX: Final = 1.0
# Calls with one guard: their answers wait for each other, and a guard costs the server as much as a
# small call.
GUARDED_CALLS_MAX: Final = 32
_GUARD_HEAD: Final = b"*2\r\n$4\r\nPING\r\n$20\r\n"
_GUARD_FIRST: Final = 100_000_000_000  # so that all have as many digits


@final
class GuardWords:
    """Texts of the guards of one connection: eight random digits and a number used once."""

    __slots__ = ("_last", "_prefix")

    def __init__(self) -> None:
        self._prefix = os.urandom(4).hex().encode()
        self._last = _GUARD_FIRST

    def next(self) -> bytes:
        """Return the text of the next guard."""
        self._last += 1
        return b"%b%d" % (self._prefix, self._last)


def guard_command(text: bytes) -> bytes:
    """Return the command whose answer is `text`."""
    return b"%b%b\r\n" % (_GUARD_HEAD, text)


def guard_failure(reply: Reply) -> str:
    """Return why a connection ends whose guard was answered with something else."""
    if type(reply) is ErrorReply:
        return f"it answered a check with {reply}"
    return "an answer is missing, or one too many; is something between us and it?"


class ReplyReceiver(Protocol):
    """Who is told how a call went: a future, or whoever needs no loop's tick to be told."""

    def done(self) -> bool:
        """Return whether it has been told, or no longer listens."""

    def cancelled(self) -> bool:
        """Return whether it no longer listens."""

    def exception(self) -> BaseException | None:
        """Return the failure it was told, if it was one."""

    def set_result(self, reply: Reply, /) -> None:
        """The answer. Called amid a read: it must not raise."""

    def set_exception(self, error: BaseException, /) -> None:
        """The failure; likewise."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have `callback` called once it has been told."""


@final
class RedisCall:
    """One question on its way: its bytes, its waiter, and what a second attempt would need."""

    __slots__ = ("asking", "future", "payload", "resends", "script", "slot")

    def __init__(
        self,
        future: ReplyReceiver,
        payload: bytes,
        script: Script | None = None,
        slot: int = -1,
    ) -> None:
        self.future = future
        self.payload = payload
        self.script = script
        self.slot = slot
        self.resends = 0
        self.asking = False

    def fail(self, error: Exception) -> None:
        """End it with an error, if its waiter is still there."""
        if not self.future.done():
            self.future.set_exception(error)


class RedisClient(ABC):
    """Runs scripts and commands on the node that has their keys; bound to one event loop."""

    _loop: asyncio.AbstractEventLoop

    @abstractmethod
    def send(self, call: RedisCall) -> None:
        """Have the call answered by the node of its slot, or fail it; never raise, never wait."""

    def slot_of(self, keys: Sequence[bytes | str]) -> int:
        """Return the slot of these keys; -1 where there are no slots."""
        return -1

    def run_script(
        self, script: Script, keys: Sequence[bytes | str], args: Sequence[Part] = ()
    ) -> asyncio.Future[Reply]:
        """Run the script where its keys are; all of them must be in one place."""
        slot = self.slot_of(keys)
        future: asyncio.Future[Reply] = self._loop.create_future()
        self.send(RedisCall(future, script.call(keys, args), script, slot))
        return future

    def send_script(
        self,
        receiver: ReplyReceiver,
        script: Script,
        keys: Sequence[bytes | str],
        args: Sequence[Part],
        slot: int,
    ) -> None:
        """Run the script in `slot`, and hand the reply to `receiver`, without a future."""
        self.send(RedisCall(receiver, script.call(keys, args), script, slot))

    def call(self, *parts: Part, key: bytes | str | None = None) -> asyncio.Future[Reply]:
        """Send one command to the node of `key`, or to any."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        self.send(
            RedisCall(future, command(*parts), None, -1 if key is None else self.slot_of([key]))
        )
        return future

    @abstractmethod
    def push(self) -> None:
        """Write what was sent in this tick of the loop now, and not at its end."""

    @abstractmethod
    def call_each(self, *parts: Part) -> Mapping[str, asyncio.Future[Reply]]:
        """Send one command to each node in use; the calls by the nodes' names."""

    @property
    @abstractmethod
    def paths(self) -> Sequence[PathTimeout]:
        """The time-outs of the nodes in use; any thread may read them."""

    @abstractmethod
    def unavailable_reason(self, slot: int = -1) -> str:
        """Return why a call to this slot would fail at once, or ""; any thread may ask."""

    @abstractmethod
    async def connect(self) -> None:
        """Return when connected, or raise what prevents it. The first call does it too."""

    @abstractmethod
    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and give back what is held."""


class RedisConnectionOwner(Protocol):
    """What a connection tells: at most one word a read, a sweep or an end, never one a call."""

    def on_replies(self) -> None:
        """Answers came in time."""

    def on_timeout(self, reason: str) -> None:
        """Calls have timed out."""

    def on_error(self, call: RedisCall, error: ErrorReply) -> None:
        """This call was answered with an error; end it, or send it again."""

    def on_close(self, reason: str) -> None:
        """The connection has ended, and its calls have failed."""


@final
class RedisConnection(asyncio.Protocol):
    """Made by `open_connection`. Belongs to the loop that made it."""

    def __init__(
        self, endpoint: Endpoint, settings: RedisSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.what = f"{settings.kind} at {endpoint}"
        self._kind = settings.kind
        self._loop = loop
        self._reader = hiredis.Reader(replyError=error_reply, notEnoughData=_MORE)
        self._owner: RedisConnectionOwner | None = None
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = loop.create_future()
        self._end_reason: str | None = None  # set once it has ended, or is to end
        self._waiting: deque[RedisCall] = deque()
        self._guard_words: GuardWords | None = None
        self._unguarded = 0  # calls sent since the last guard
        self._guards: deque[tuple[int, bytes]] = deque()  # calls before each, and its text
        self._held: list[Reply] = []  # until the guard behind them is answered
        self._held_bytes = 0  # of these, and of the reply that is not whole yet
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._flush_due = False
        self._paused = False
        # Calls are counted from the first; a mark is (calls written up to here, when they left).
        self._sent = 0
        self._written = 0
        self._answered = 0
        self._expired = 0
        self._marks: deque[tuple[int, float]] = deque()
        # No TimerHandle: uvloop's `call_at` gives a Handle without `when` for an instant within
        # half a millisecond.
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._late = False
        self._replied_at = 0.0
        self._owed: deque[tuple[int, float]] = deque()  # marks that have expired, not answered
        self._path: PathTimeout | None = None
        self._timeout_s = settings.connect_timeout_us / 1e6
        self._silence_s = settings.silence_us_max / 1e6
        self._inflight_max = settings.inflight_max
        self._unsent_bytes_max = settings.unsent_bytes_max
        self._reply_bytes_max = settings.reply_bytes_max

    # What the node uses.

    @property
    def is_open(self) -> bool:
        """Whether calls may be sent."""
        return self._end_reason is None and self._transport is not None

    @property
    def inflight(self) -> int:
        """Calls without an answer, those whose waiters have gone included."""
        return len(self._waiting)

    @property
    def is_guarded(self) -> bool:
        """Whether its writes end with guards."""
        return self._guard_words is not None

    def serve(self, owner: RedisConnectionOwner, path: PathTimeout) -> None:
        """Report to `owner` from now on, and time calls out as `path` learns from them."""
        self._owner = owner
        self._path = path
        self._timeout_s = path.timeout_us / 1e6

    def guard(self) -> None:
        """From now on end each write with a guard; no call may be in flight."""
        self._guard_words = GuardWords()

    def send(self, call: RedisCall, *, again: bool = False) -> None:
        """Have the call leave with this tick of the loop, or fail it.

        `again` is for what follows from an answer just read: the place it needs was just freed.
        """
        payload = call.payload
        if self._end_reason is not None:
            call.fail(Unavailable(self.what, self._end_reason))
            return
        if len(self._waiting) >= self._inflight_max and not again:
            call.fail(
                Unavailable(self.what, f"{self._inflight_max} calls wait already (inflight_max)")
            )
            return
        size = self._unsent_bytes + len(payload)
        if size > self._unsent_bytes_max:
            call.fail(self._too_much(len(payload)))
            return
        try:
            self._unsent_bytes = size
            if self._unguarded >= GUARDED_CALLS_MAX and not call.asking:  # ASKING is right before
                self._add_guard()
            self._unsent.append(payload)
            self._waiting.append(call)
            self._sent += 1
            self._unguarded += 1
            if not self._flush_due:
                self._flush_due = True
                self._loop.call_soon(self._flush)
        except BaseException as error:
            self._break("sending", error)
            call.fail(self._ended())

    def push(self) -> None:
        """Write what waits now, not at the end of this tick."""
        if self._unsent:
            self._flush_now()

    def ask(self, *parts: bytes | str | int) -> asyncio.Future[Reply]:
        """Send one command of our own; an error reply is raised as it came."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        self.send(RedisCall(future, command(*parts)))
        return future

    def end(self, reason: str) -> None:
        """Fail every waiter, and give the socket up at once."""
        self._stop(reason)
        if self._transport is not None:
            self._transport.abort()

    async def close(self, reason: str = "it was closed") -> None:
        """Fail every waiter, and return when the socket is closed."""
        self._stop(reason)
        if self._transport is None:
            return
        self._transport.close()
        try:
            # Not wait_for: before Python 3.12 it may swallow a cancellation.
            async with asyncio.timeout(_CLOSE_S_MAX):
                await asyncio.shield(self._closed)
        except TimeoutError:  # TLS waits for a goodbye that a dead peer never says
            self._transport.abort()
            await self._closed

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        try:
            self._transport.set_write_buffer_limits(high=self._unsent_bytes_max)
            sock = transport.get_extra_info("socket")
            if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
                keep_alive(sock)
        except OSError as error:
            self.end(f"the connection broke ({error})")  # before it could be used
        except BaseException as error:
            self._break("connecting", error)

    def pause_writing(self) -> None:
        """Part of asyncio.Protocol: the socket takes no more for now."""
        self._paused = True

    def resume_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self._paused = False
        if self._unsent and not self._flush_due:
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol: hand each answer to the call it belongs to."""
        if self._end_reason is not None:
            return
        errors: deque[tuple[RedisCall, ErrorReply]] = deque()
        try:
            self._take(data, errors)
        except hiredis.ProtocolError as error:
            self.end(f"it does not speak RESP; is this the port of a {self._kind}? ({error})")
        except BaseException as error:
            self._break("reading", error)
        for call, _ in errors:  # left over only if the connection has ended
            call.fail(self._ended())

    def eof_received(self) -> None:
        """Part of asyncio.Protocol: the transport closes itself after this."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self._stop("it closed the connection" if exc is None else f"the connection broke ({exc})")
        if not self._closed.done():
            self._closed.set_result(None)
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.on_close(self._end_reason or "")

    # Inside.

    def _flush(self) -> None:
        self._flush_due = False
        if self._unsent:
            self._flush_now()

    def _flush_now(self) -> None:
        if self._paused or self._end_reason is not None or self._transport is None:
            return
        try:
            self._add_guard()
            payloads = self._unsent
            left_at = self._loop.time() + _transfer_s(self._unsent_bytes)
            due = left_at + self._timeout_s
            if self._timer is None or due < self._timer_at:
                self._set_timer(due)
            self._marks.append((self._sent, left_at))
            self._unsent = []
            self._unsent_bytes = 0
            self._written = self._sent
            self._transport.write(payloads[0] if len(payloads) == 1 else b"".join(payloads))
        except BaseException as error:
            self._break("writing", error)

    def _add_guard(self) -> None:
        if self._guard_words is not None and self._unguarded:
            text = self._guard_words.next()
            payload = guard_command(text)
            self._unsent.append(payload)
            self._unsent_bytes += len(payload)
            self._guards.append((self._unguarded, text))
        self._unguarded = 0

    def _take(self, data: bytes, errors: deque[tuple[RedisCall, ErrorReply]]) -> None:
        before = self._answered
        self._read(data, errors)
        self._count_answers(before)
        in_time = self._answered - max(before, self._expired) - len(errors)
        owner = self._owner
        while errors:
            call, refusal = errors[0]
            if owner is None:
                call.fail(refusal)
            else:
                owner.on_error(call, refusal)
            errors.popleft()  # not before it is done
        if self._reader.len() > self._reply_bytes_max:
            self.end(f"a reply is over {self._reply_bytes_max} bytes (reply_bytes_max)")
        # An answer that comes too late for its caller is no sign of health.
        if in_time > 0 and owner is not None and self._end_reason is None:
            owner.on_replies()

    def _read(self, data: bytes, errors: deque[tuple[RedisCall, ErrorReply]]) -> None:
        gets = self._reader.gets
        held = self._held
        guards = self._guards
        is_guarded = self._guard_words is not None
        wanted = guards[0][0] if guards else 0  # before the next guard
        self._reader.feed(data)
        self._held_bytes += len(data)
        while (reply := gets()) is not _MORE:
            if type(reply) is hiredis.PushNotification:
                continue
            if len(held) < wanted:
                held.append(reply)
                continue
            if not is_guarded:
                held.append(reply)
            elif not guards or (reply != guards.popleft()[1] and not are_errors(held, reply)):
                self.end(guard_failure(reply))
                return
            self._deliver(errors)
            wanted = guards[0][0] if guards else 0
        if not held:
            self._held_bytes = self._reader.len()

    def _deliver(self, errors: deque[tuple[RedisCall, ErrorReply]]) -> None:
        """Hand what was held back to the oldest calls."""
        waiting = self._waiting
        for reply in self._held:
            if not waiting:
                self.end("it answered what was not asked; is something between us and it?")
                break
            call = waiting.popleft()
            self._answered += 1
            if type(reply) is ErrorReply:
                # Later: what is done about it may send, and that must not be amid a read.
                errors.append((call, reply))
                continue
            future = call.future
            if not future.done():
                try:
                    future.set_result(reply)
                except BaseException:
                    call.fail(Unavailable(self.what, "its answer could not be handed over"))
                    raise
        self._held.clear()

    def _count_answers(self, before: int) -> None:
        """Record how long the oldest of the calls took that this read answered."""
        now = self._replied_at = self._loop.time()
        oldest = None
        for marks in (self._owed, self._marks):
            while marks and marks[0][0] <= self._answered:
                written = marks.popleft()[1]
                oldest = written if oldest is None else oldest
        if oldest is not None and self._path is not None:
            late = max(min(self._answered, self._expired) - before, 0)
            self._path.observe(int((now - oldest) * 1e6), late, int(now * 1e6))

    @property
    def _owed_since(self) -> float | None:
        """When the oldest of the expired calls was written that are not answered."""
        return self._owed[0][1] if self._owed else None

    def _sweep(self) -> None:
        """Fail what is too old, end a connection that has fallen silent, and set the timer."""
        try:
            self._timer = None
            self._look()
        except BaseException as error:
            self._break("looking for late answers", error)

    def _look(self) -> None:
        now = self._loop.time()
        if self._path is not None:
            self._timeout_s = self._path.look(int(now * 1e6)) / 1e6
        due = self._due()
        if due is None or now < due:
            self._late = False
            if due is not None:
                self._set_timer(due)
            return
        if not self._late:
            # The program may be what is late: let the loop read once more first.
            self._late = True
            self._set_timer(now)
            return
        self._late = False
        on_timeout = self._expire(now - self._patience_s())
        owed_since = self._owed_since
        if owed_since is not None and now - max(self._replied_at, owed_since) >= self._silence_s:
            self.end(f"it has said nothing for {self._silence_s * 1e3:g} ms, and owes answers")
            return
        due = self._due()
        if due is not None:
            self._set_timer(max(due, now + self._timeout_s / _SWEEPS))
        if on_timeout and self._owner is not None:
            self._owner.on_timeout(self._timeout_reason())

    def _due(self) -> float | None:
        """Return when the next thing may be late: a call's answer, or all that is owed."""
        due = None
        if self._owed_since is not None:
            due = max(self._replied_at, self._owed_since) + self._silence_s
        if self._marks:
            call_due = self._marks[0][1] + self._patience_s()
            if due is None or call_due < due:
                due = call_due
        return due

    def _expire(self, written_before: float) -> bool:
        """Fail the calls written until then; whether there were any."""
        marks = self._marks
        expired = self._expired
        while marks and marks[0][1] <= written_before:
            expired = marks[0][0]
            self._owed.append(marks.popleft())
        first = max(self._expired - self._answered, 0)
        self._expired = max(self._expired, expired)
        reason = self._timeout_reason()
        # Copied: the receiver of a failure may send.
        late = list(islice(self._waiting, first, max(self._expired - self._answered, 0)))
        for call in late:
            call.fail(Unanswered(self.what, reason))
        return first < self._expired - self._answered

    def _patience_s(self) -> float:
        """Return how long an answer may take, of which some bytes may be here."""
        return self._timeout_s + _transfer_s(self._held_bytes)

    def _timeout_reason(self) -> str:
        return f"no answer in {self._timeout_s * 1e3:g} ms"

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer = self._loop.call_at(at, self._sweep)
        self._timer_at = at

    def _too_much(self, size: int) -> Exception:
        if size > self._unsent_bytes_max:
            return BadValue(
                "command", f"{size} bytes", f"send at most {self._unsent_bytes_max} at once"
            )
        return Unavailable(
            self.what, f"{self._unsent_bytes} bytes wait to be sent already (unsent_bytes_max)"
        )

    def _ended(self) -> Unavailable:
        return Unavailable(self.what, self._end_reason or "")

    def _break(self, doing: str, error: BaseException) -> None:
        """End the connection: after an exception its answers can no longer be matched."""
        self._stop(f"{doing} failed ({error!r}); its answers can no longer be matched")
        if self._transport is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._transport.abort()
        if not isinstance(error, Exception):
            raise error
        self._report(error)

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": f"{self.what}: the connection was ended", "exception": error}
        )

    def _stop(self, reason: str) -> None:
        if self._end_reason is not None:
            return
        self._end_reason = reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        written = self._written - self._answered  # the calls that the server may have
        self._unsent.clear()
        self._marks.clear()
        self._owed.clear()
        self._guards.clear()
        while self._waiting:
            call = self._waiting.popleft()
            kind = Unanswered if written > 0 else Unavailable
            written -= 1
            try:
                call.fail(kind(self.what, reason))
            except Exception as error:  # one caller's; the others are still to be failed
                self._report(error)


def are_errors(replies: Sequence[Reply], guard_reply: Reply) -> bool:
    """Return whether the guard and all before it got errors, as from a server that is loading.

    Errors are passed on without proof: none of them holds an answer.
    """
    if type(guard_reply) is not ErrorReply:
        return False
    return all(type(reply) is ErrorReply for reply in replies)


def _transfer_s(size: int) -> float:
    return max(size - _SMALL_BYTES_MAX, 0) * _S_PER_BYTE


async def open_connection(
    endpoint: Endpoint, settings: RedisSettings, *, guarded: bool = True
) -> RedisConnection:
    """Return a connection that has said HELLO, is in its database, and has answered a PING.

    Pass `guarded=False` for a single question, whose reply needs no matching: a sentinel before
    Redis 7 rejects a PING with a text.
    """
    loop = asyncio.get_running_loop()
    connection = RedisConnection(endpoint, settings, loop)
    timeout_s = settings.connect_timeout_us / 1e6
    try:
        async with asyncio.timeout(timeout_s):
            await _connect(connection, endpoint, settings)
            await _greet(connection, settings)
            if guarded:
                connection.guard()
    except BaseException as error:
        connection.end("connecting failed")
        if connection._transport is not None:
            await asyncio.shield(connection._closed)
        raise connect_error(connection.what, error, settings) from None
    return connection


async def _connect(
    connection: RedisConnection, endpoint: Endpoint, settings: RedisSettings
) -> None:
    loop = asyncio.get_running_loop()
    if endpoint.path:
        await loop.create_unix_connection(lambda: connection, endpoint.path)
    else:
        tls = tls_context(settings) if settings.tls else None
        name = (settings.tls_name or None) if tls is not None else None
        await loop.create_connection(
            lambda: connection, endpoint.host, endpoint.port, ssl=tls, server_hostname=name
        )


def keep_alive(sock: socket.socket) -> None:
    """Have small writes leave at once, and a peer that has died be noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def greeting(settings: RedisSettings) -> list[list[str | int]]:
    """Return the first commands of a connection; the first that fails says why it is of no use."""
    hello: list[str | int] = ["HELLO", 3]
    if settings.password:
        hello += ["AUTH", settings.user or "default", settings.password]
    if settings.client_name:
        hello += ["SETNAME", settings.client_name]
    select: list[list[str | int]] = [["SELECT", settings.db]] if settings.db else []
    return [hello, *select, ["PING"]]


async def _greet(connection: RedisConnection, settings: RedisSettings) -> None:
    calls = [connection.ask(*words) for words in greeting(settings)]  # all in one write
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer


def connect_error(what: str, error: BaseException, settings: RedisSettings) -> BaseException:
    """Return what is told of a connection that could not be made."""
    if isinstance(error, TimeoutError):
        return Unavailable(what, f"not connected in {settings.connect_timeout_us / 1e3:g} ms")
    if isinstance(error, ErrorReply):
        if error.code == "ERR" and "unknown command" in error.text and "HELLO" in error.text:
            return Unavailable(what, "it does not know HELLO; Redis 6.2 or newer is needed")
        # Some servers and proxies repeat the question in their complaint.
        reason = str(error)
        if settings.password:
            reason = reason.replace(settings.password, "***")
        return Unavailable(what, reason)
    if isinstance(error, ssl.SSLError):
        return Unavailable(what, f"TLS failed ({error.reason or error}); see tls_ca, tls_verify")
    if isinstance(error, OSError):
        return Unavailable(what, f"cannot connect ({error.strerror or error})")
    if isinstance(error, RuntimeError) and "after" in str(error) and "shutdown" in str(error):
        # The interpreter has ended its threads, and with them those that look up names.
        return Unavailable(what, "the program is ending")
    if isinstance(error, UnicodeError):
        return Unavailable(what, "cannot connect (that is no host name)")
    return error


def tls_context(settings: RedisSettings) -> ssl.SSLContext:
    """Return what the settings say of TLS."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
        if settings.tls_cert:
            context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    except OSError as error:
        files = ", ".join(filter(None, (settings.tls_ca, settings.tls_cert, settings.tls_key)))
        raise BadValue("redis.tls", files, f"give files that can be read ({error})") from None
    if not settings.tls_check_host or not settings.tls_verify:
        context.check_hostname = False
    if not settings.tls_verify:
        context.verify_mode = ssl.CERT_NONE
    return context
