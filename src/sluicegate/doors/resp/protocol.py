"""Protocol: one connection's bytes, and the order of its replies.

Commands run as they are read, in portions, of which a connection has a share in each turn of the
loop (`doors/turns.py`); what is left waits for the next one, unread. Replies leave in that order,
at the end of the turn: in one write for all that came in one read. A reply that waits for a store
keeps its place in a queue; commands behind it run meanwhile, until `replies_owed_max` are pending,
or those that are there weigh `replies_bytes_max`, or `door_bytes_max` over all connections; then
nothing more is read. Nor is anything read while the client does not read. So one client costs what
the settings say, whatever it sends.

The first thing that is not RESP gets an error and ends the connection, when the replies before it
are out. A command beyond the bounds gets an error alone, if its client has an identity. Where a
table's commands must keep their order, a command that may not run yet is kept back, and the bytes
behind it stay unread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, cast, final

from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.resp.errors import NOAUTH, reply_to_error, unknown_command, wrong_arity
from sluicegate.doors.resp.limiter.commands import LIMITER
from sluicegate.doors.resp.order import Order
from sluicegate.doors.resp.session import Command, CommandTable, Reply, RespState, Session
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.doors.stepper import Stepper
from sluicegate.doors.turns import Turns, TurnShare, class_of
from sluicegate.policies.quota.refusal_pace import RefusalPace
from sluicegate.wire.resp import CommandReader, OversizedCommand, WireError, error_line

_PORTION: Final = 16  # commands between two looks at the turn
_PARTS_SHIFT: Final = 4  # one of so many parts (16), or with a reply of so many bytes (4 KiB),
_REPLY_SHIFT: Final = 12  # counts as two
_TOO_SLOW: Final = error_line("ERR a command took too long to come whole")
_NO_ACCESS: Final = error_line("NOAUTH Access was revoked or has expired.")
_NO_NAME: Final = error_line("NOAUTH Authentication required, and it took too long.")
_TOO_LONG: Final = error_line("ERR the reply is longer than resp.reply_bytes_max; ask for less")
_LENGTHS_SHIFT: Final = 3  # a shorter reply lowers the expected length by an eighth
_FIRST_SHIFT: Final = 5  # before the first reply, 1/32 of the bound
_TOO_MUCH: Final = error_line("ERR more is sent than is read while replies are owed")


def portions_of(commands: int) -> int:
    """So many commands in portions, rounded up."""
    return -(-commands // _PORTION)


@final
class _PendingReply:
    """A reply's place in the queue; None until it is there."""

    __slots__ = ("pieces", "size", "work")

    def __init__(self, reply: bytes | None = None) -> None:
        self.pieces: list[bytes] | None = None
        self.size = 0
        self.work: Stepper | asyncio.Future[Reply] | None = None
        if reply is not None:
            self.fill(reply)

    def fill(self, reply: Reply) -> None:
        """Fill the place."""
        pieces = [reply] if isinstance(reply, bytes) else reply
        size = 0
        for piece in pieces:
            size += len(piece)
        self.pieces = pieces
        self.size = size


@final
class RespProtocol:
    """One connection. It does what `asyncio.Protocol` asks for, and `drain` and `tick` besides."""

    __slots__ = (
        "_answered",
        "_began_s",
        "_blocked_command",
        "_client_stalled",
        "_clock",
        "_dead",
        "_ended",
        "_eof",
        "_flushing",
        "_left",
        "_loop",
        "_order",
        "_out",
        "_owed",
        "_owes_rest",
        "_partial_at",
        "_partial_since_s",
        "_paused",
        "_pending",
        "_pending_bytes",
        "_pending_max",
        "_reader",
        "_reader_identity",
        "_reply_bytes",
        "_reply_bytes_max",
        "_rests",
        "_session",
        "_share",
        "_transport",
        "_turn_bytes",
        "_turns",
    )

    def __init__(self, state: RespState, session: Session, turns: Turns) -> None:
        settings = state.settings
        self._session = session
        self._reader = CommandReader(
            settings.stranger_parts_max,
            settings.stranger_bulk_bytes_max,
            settings.command_bytes_max,
            settings.inline_bytes_max,
        )
        self._pending_max = settings.replies_owed_max
        ordered = state.table.ordered
        self._clock = state.clock if ordered else None
        self._turns = turns
        self._share = TurnShare(turns, portions_of(settings.connection_commands_max), self._go_on)
        self._left = 0  # commands of the portion under way
        self._order = Order(state.table, settings.replies_owed_max) if ordered else None
        self._blocked_command: list[bytes] | None = None  # a command that waits for those before it
        self._turn_bytes = settings.turn_bytes
        self._reply_bytes_max = settings.reply_bytes_max
        self._reply_bytes = settings.reply_bytes_max >> _FIRST_SHIFT  # expected, of an awaited one
        self._transport: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._out: list[bytes] = []  # what stands before the line, and leaves with the turn
        self._pending: deque[_PendingReply] = deque()
        self._pending_bytes = 0  # of replies in the line that are known, and wait for those before
        self._owed: set[_PendingReply] = set()  # whose work goes on, also when nobody hears of it
        self._flushing = False  # a flush is on its way
        self._client_stalled = False  # the client does not read
        self._paused = False  # nor do we
        self._rests = False  # its caller is far over its quota
        self._owes_rest = False  # so it was, and what has come already is run first
        self._answered = 0  # commands, since its pace was looked at
        self._ended = False  # nothing more is run
        self._eof = False  # nothing more will come
        self._dead = False
        self._began_s = 0.0
        self._reader_identity: Identity | None = None  # whom the reader is set for
        self._partial_at = -1
        self._partial_since_s = 0.0

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        session, state = self._session, self._session.state
        self._began_s = session.began_s = state.now_s = self._loop.time()
        if not state.began_s:
            state.began_s = self._began_s
        state.sessions[session.id] = session
        self._set_reader_bounds()

    def data_received(self, data: bytes) -> None:
        """More of it."""
        clock, held_up = self._clock, self._paused or self._share.waiting
        if clock is not None and not (held_up and self._has_backlog()):
            arrived_us = clock.now_us() - self._turns.lag_us()
            self._session.arrived_us = self._session.ready_us = arrived_us
        if self._ended:  # what comes behind the last command is not kept while replies are owed
            return
        self._reader.feed(data)
        if held_up:
            if self._reader.unread > self._session.state.settings.unread_bytes_max:
                self._end(_TOO_MUCH)
            elif not self._paused:  # most who wait send nothing meanwhile, and never come here
                self._pause()
            return
        self._run()

    def eof_received(self) -> bool:
        """The client says no more; what it is owed it shall have, as far as the transport can."""
        self._eof = True
        if not self._held_up():
            self._ended = True
        owing = self._held_up() or bool(self._pending) or bool(self._out)
        return owing and self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone; what is under way goes on, for it may be counted, and nobody hears of it."""
        self._dead = self._ended = True
        self._session.state.sessions.pop(self._session.id, None)
        self._session.state.pending_bytes -= self._pending_bytes
        self._pending_bytes = 0
        self._pending.clear()
        self._out.clear()
        self._share.close()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        self._client_stalled = True
        self._pace_reading()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._client_stalled = False
        if self._pending and self._pending[0].pieces is not None:
            self._flush_soon()
        if self._paused:
            self._resume()

    # What the listener calls.

    def under_way(self) -> int:
        """Replies that are owed."""
        return len(self._out) + len(self._pending)

    def caller(self) -> str:
        """Return the caller of its last request."""
        identity = self._session.identity
        return "" if identity is None else identity.name

    def held_bytes(self) -> int:
        """Return the bytes of commands that have not run, and of replies that wait."""
        held_bytes = self._reader.held_bytes + self._pending_bytes
        if self._blocked_command is not None:
            for part in self._blocked_command:
                held_bytes += len(part)
        return held_bytes

    def drain(self) -> None:
        """Take nothing more, answer what was taken, close."""
        self._ended = True
        self._close_if_done()

    def check_callers(self, reloaded: bool) -> bool:
        """Look up again who speaks; replies that are owed to who lost access are errors.

        A client without an identity is refused at its next command, and has `auth_timeout_s` from
        its connection to authenticate: an older one ends at the next look.
        """
        session = self._session
        identity, clock = session.identity, self._clock
        ended = identity is not None and bool(
            identity.ended(0 if clock is None else clock.now_us())
        )
        if not (reloaded or ended) or self._ended:
            return False
        session.resolve()
        if ended:
            session.end_transaction()
            # The work goes on, for it may be counted.
            for owed in self._pending:
                if owed.pieces is None:
                    owed.fill(_NO_ACCESS)
                    self._count_pending(owed.size)
            self._flush_soon()
        return False

    def tick(self, now_s: float) -> None:
        """End a client that takes too long to send a command, or to authenticate."""
        session = self._session
        settings = session.state.settings
        session.state.now_s = now_s
        if self._ended:
            return
        if session.identity is None and now_s - self._began_s >= settings.auth_timeout_s:
            self._end(_NO_NAME)
        elif self._held_up() or not self._reader.partial:
            self._partial_at = -1
        elif self._partial_at != session.commands:
            self._partial_at = session.commands
            self._partial_since_s = now_s
        elif now_s - self._partial_since_s >= settings.command_timeout_s:
            self._end(_TOO_SLOW)

    # Inside.

    def _run(self) -> None:
        """Run all whole commands, as far as there is room for their replies."""
        self._share.begin()
        self._left = 0
        session = self._session
        ran = session.commands
        if session.identity is not self._reader_identity:  # the door has asked anew who speaks
            self._set_reader_bounds()
        self._run_commands()
        if self._out:
            self._flush_soon()
        self._answered += session.commands - ran
        self._keep_pace()
        if not self._ended:
            self._pace_reading()
            if self._eof and not self._held_up():
                self._ended = True
        if self._ended:
            self._close_if_done()

    def _run_commands(self) -> None:
        """Read and run commands, and put their replies into their order."""
        session, line, order = self._session, self._pending, self._order
        size = 0
        while not (self._ended or self._client_stalled or (line and self._full())):
            reply: bytes | Awaitable[Reply]
            parts = self._blocked_command
            try:
                if parts is None:
                    parts = self._reader.gets()
                    if parts is None:
                        return
            except WireError as error:
                reply = self._reply_to_error(error)
            else:
                self._blocked_command = parts
                if self._left <= 0 and not self._enter():
                    return
                if line and order is not None and not order.may_run(parts):
                    return
                self._blocked_command = None
                reply = self._reply_to(parts)
            if not isinstance(reply, bytes):
                self._await_reply(reply)
                continue
            if session.ends:
                self._ended = True
            if session.identity is not self._reader_identity:
                self._set_reader_bounds()
            if line:
                line.append(_PendingReply(reply))
                self._count_pending(len(reply))
                continue
            self._out.append(reply)
            self._left -= len(reply) >> _REPLY_SHIFT
            size += len(reply)
            if size >= self._turn_bytes:
                self._write(self._out)
                size = 0

    def _keep_pace(self) -> None:
        """Put the connection off if its caller is far over its quota."""
        session, clock = self._session, self._clock
        answered, self._answered = self._answered, 0
        pace, identity = session.state.pace, session.identity
        if pace is None or clock is None or identity is None:
            return
        refused, caller = session.refused, identity.name
        if refused == 0 and caller not in pace.due_us:
            return
        session.refused = 0
        now_us = clock.now_us()
        pace.record(caller, max(0, answered - refused), refused, now_us)
        delay_us = pace.delay_us(caller, now_us)
        if refused:
            self._owes_rest = True
        if delay_us == 0:
            self._owes_rest = False
        elif self._owes_rest and not self._share.waiting:
            self._owes_rest = False
            pace.count(delay_us)
            self._rests = True
            self._share.rest(delay_us, class_of(identity, session.criticality), caller)

    def _reply_to(self, parts: list[bytes]) -> bytes | Awaitable[Reply]:
        """Run a command; return its reply, now or later. An error becomes the reply."""
        size = len(parts)
        self._left -= 1 + (size >> _PARTS_SHIFT)
        session, state = self._session, self._session.state
        table = state.table
        row = table.by_spelling.get(parts[0]) or table.find(parts[0])
        if session.identity is None and (row is None or not row.open):
            return NOAUTH
        if row is None:
            return self._refuse(unknown_command(parts))
        if size < row.least or (size > row.most and row.most > 0):
            return self._refuse(wrong_arity(row.name))
        session.last = row.name
        session.commands += 1
        state.commands += 1
        try:
            if session.transaction is not None and table.enqueue is not None:
                reply = table.enqueue(session, row, parts)
            else:
                reply = row.run(session, parts)
        except Exception as error:
            return session.refuse(error)
        if not isinstance(reply, bytes):
            if self._order is not None:
                self._order.note(parts)
        elif len(reply) > self._reply_bytes_max:
            return _TOO_LONG
        return reply

    def _reply_to_error(self, error: WireError) -> bytes:
        """Return the reply to a command that is too large, or to bytes that are not RESP."""
        reply = error_line(f"ERR {error}")
        if isinstance(error, OversizedCommand):
            return self._refuse(reply)
        self._ended = True
        return reply

    def _refuse(self, reply: bytes) -> bytes:
        """Return the error reply to an invalid command, and abort an open transaction."""
        if self._session.transaction is not None:
            self._session.transaction.aborted = True
        return reply

    def _enter(self) -> bool:
        """Whether one more portion may be run in this turn; if not, what is left waits for one."""
        session = self._session
        identity, share = session.identity, self._share
        if share.enter_or_wait(
            class_of(identity, session.criticality),
            "" if identity is None else identity.name,
            session.arrived_us + session.timeout_us if session.timeout_us else 0,
        ):
            self._left = _PORTION
            return True
        if share.served:
            self._note_ready()  # from here on it waits for others alone
        return False

    def _go_on(self) -> None:
        """Run what had to wait for a turn."""
        if self._rests:
            self._rests = False
            self._note_ready()  # that it was put off is no queue
        if not self._ended:
            self._run()

    def _note_ready(self) -> None:
        if self._clock is not None:
            self._session.ready_us = self._clock.now_us()

    def _await_reply(self, later: Awaitable[Reply]) -> None:
        owed = _PendingReply()
        self._answered -= 1
        self._pending.append(owed)
        loop = self._loop
        assert loop is not None
        if asyncio.iscoroutine(later):
            # In this portion as far as it comes: as a task it would run whenever all others do.
            stepper = Stepper(later, loop, partial(self._fill_reply, owed))
            stepper.start()
            if not stepper.done:
                owed.work = stepper
                self._owed.add(owed)
            return
        future = asyncio.ensure_future(later, loop=loop)
        owed.work = future
        self._owed.add(owed)
        future.add_done_callback(partial(self._fill_from, owed))

    def _fill_from(self, owed: _PendingReply, future: asyncio.Future[Reply]) -> None:
        if future.cancelled():
            self._fill_reply(owed, None, asyncio.CancelledError())
            return
        error = future.exception()
        self._fill_reply(owed, None if error is not None else future.result(), error)

    def _fill_reply(
        self, owed: _PendingReply, reply: Reply | None, error: BaseException | None
    ) -> None:
        """Fill the place of a reply that was waited for."""
        self._answered += 1
        self._owed.discard(owed)
        owed.work = None
        if self._dead or owed.pieces is not None:  # the caller has lost access
            return
        if error is None:
            assert reply is not None
            owed.fill(reply)
            if owed.size > self._reply_bytes_max:
                owed.fill(_TOO_LONG)
            self._note_length(owed.size)
        elif isinstance(error, asyncio.CancelledError):
            owed.fill(reply_to_error(error))
        else:
            owed.fill(self._session.refuse(error))
        self._count_pending(owed.size)
        if self._pending[0].pieces is not None:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing and self._loop is not None:
            self._flushing = True
            self._turns.at_end(self._flush)

    def _flush(self) -> None:
        """Write all replies that are there, as far as the client reads."""
        self._flushing = False
        if self._dead:
            return
        line, out = self._pending, self._out
        size = 0
        while line and not self._client_stalled:
            pieces = line[0].pieces
            if pieces is None:
                break
            reply = line.popleft()
            self._count_pending(-reply.size)
            out += pieces
            size += reply.size
            if not line and self._order is not None:
                self._order.clear()
            if size >= self._turn_bytes:
                self._write(out)
                out, size = self._out, 0
        if out:
            self._write(out)
        if self._ended:
            self._close_if_done()
        if self._paused:
            self._resume()

    def _write(self, out: list[bytes]) -> None:
        self._out = []  # first: the transport may say at once that the client does not read
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _count_pending(self, size: int) -> None:
        self._pending_bytes += size
        self._session.state.pending_bytes += size

    def _note_length(self, size: int) -> None:
        """Expect the replies that are awaited to be as long: longer at once, shorter gradually."""
        less = self._reply_bytes - size
        self._reply_bytes = size if less < 0 else self._reply_bytes - (less >> _LENGTHS_SHIFT)

    def _full(self) -> bool:
        """Whether no more replies may be pending; a client with none may always send a command."""
        state = self._session.state
        settings = state.settings
        return (
            len(self._pending) >= self._pending_max
            or self._pending_bytes + len(self._owed) * self._reply_bytes
            >= settings.replies_bytes_max
            or state.pending_bytes >= settings.door_bytes_max
        )

    def _resume(self) -> None:
        """Run what was left while there was no room."""
        if not self._ended and not self._share.waiting:
            self._note_ready()
            self._run()

    def _has_backlog(self) -> bool:
        """Whether something of an earlier read has not run."""
        return self._blocked_command is not None or self._reader.partial

    def _held_up(self) -> bool:
        """Whether nothing may be run that comes now."""
        return self._paused or self._share.waiting

    def _pace_reading(self) -> None:
        """Read only while there is room for the replies.

        Who waits for a turn and had nothing in this one is read once more: mostly nothing comes.
        """
        share = self._share
        if share.waiting and not share.served:
            return
        full = (
            share.waiting
            or self._client_stalled
            or self._blocked_command is not None
            or (bool(self._pending) and self._full())
        )
        if full and not self._paused:
            self._pause()
        elif self._paused and not full:
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def _set_reader_bounds(self) -> None:
        """Let a client with an identity send larger commands."""
        settings = self._session.state.settings
        self._reader_identity = self._session.identity
        stranger = self._reader_identity is None
        reader = self._reader
        reader.skips = not stranger
        reader.parts_max = settings.stranger_parts_max if stranger else settings.parts_max
        reader.bulk_bytes_max = (
            settings.stranger_bulk_bytes_max if stranger else settings.bulk_bytes_max
        )

    def _end(self, last: bytes) -> None:
        """Send this behind all pending replies, and close."""
        self._ended = True
        if self._pending:
            self._pending.append(_PendingReply(last))
        else:
            self._write([*self._out, last])
        self._close_if_done()

    def _close_if_done(self) -> None:
        """Close a connection that has ended, once nothing is owed."""
        if not self._out and not self._pending and not self._dead:
            self._transport.close()


@final
class RespDoor:
    """Makes the protocol of each connection that speaks RESP.

    `service` is what the commands of `table` call: a limiter's, unless another is given. Without a
    clock the turns of the loop are bounded by commands alone; a table whose commands have deadlines
    needs one.
    """

    __slots__ = ("_shared", "turns")

    def __init__(
        self,
        service: Any,
        access: Access,
        settings: RespSettings | None = None,
        table: CommandTable = LIMITER,
        clock: Clock | None = None,
        pace: RefusalPace | None = None,
    ) -> None:
        if table.ordered and clock is None:
            raise BadValue("clock", clock, "give the clock that deadlines are measured by")
        chosen = RespSettings() if settings is None else settings
        portions = portions_of(chosen.turn_commands_max)
        self.turns = Turns(clock, portions, chosen.turn_us_max, by_class=chosen.turn_by_class)
        self._shared = RespState(service, access, chosen, table, clock, pace)

    def protocol(self, peer: str = "", names: Sequence[str] = ()) -> asyncio.Protocol:
        """For a connection from `peer`, whose verified client certificate has these names."""
        state = self._shared
        state.connections += 1
        session = Session(state, state.connections, peer, names)
        # Not a subclass: a compiled class has none but compiled ancestors.
        return cast("asyncio.Protocol", RespProtocol(state, session, self.turns))

    def wrap_commands(self, wrap: Callable[[Command], Command]) -> None:
        """Run each command as `wrap` returns it, on connections that are yet to come."""
        self._shared.table = self._shared.table.with_rows(wrap)

    @property
    def connected(self) -> int:
        """Connections that are open."""
        return len(self._shared.sessions)

    @property
    def commands(self) -> int:
        """Commands that were run, ever."""
        return self._shared.commands
