"""Generator: a process that sends a load at its instants, and records what became of it.

Source: open-loop load generation as of wrk2 (Tene): latency is counted from the instant at which a
request was due, so a server that stalls cannot make its clients send less, nor its stall be
measured once instead of a thousand times. What is due within `BATCH_US` leaves in one write a
connection; replies come in the order of the commands, and hiredis parses them. No event loop and no
task a request: the generator must stay cheap beside what it measures.

It measures how late it sends and how much of its time it works; a `LoadRecord` says when that is
too much.
"""

from __future__ import annotations

import gc
import resource
import select
import socket
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, final

from sluicegate.command_line.process_pool import process_pool
from sluicegate.contracts.errors import MissingPackage, Unavailable
from sluicegate.lab.drills.load import DrillLoad, LoadStream, Schedule, schedule
from sluicegate.lab.drills.record import (
    FIRST_ERROR,
    SERVED,
    UNANSWERED,
    UNSENT,
    ErrorText,
    LoadRecord,
    StreamRecord,
    error_word,
)
from sluicegate.lab.measures import quantile
from sluicegate.system import now_us

HOST: Final = "127.0.0.1"
HELLO_S_MAX: Final = 10.0  # for one connection to be made and greeted
BEGIN_US: Final = 100_000  # from when all are ready to the first instant
BATCH_US: Final = 200  # what is due within is sent together
ERROR_WORDS_MAX: Final = 200  # kinds of errors that are told apart
_READ_BYTES: Final = 1 << 18
_SPIN_US: Final = 50


@final
class LoadConnection:
    """One connection: the numbers of what is under way, in the order of their replies."""

    __slots__ = ("file", "idle", "pending", "pool", "reader", "sock", "unwritten")

    def __init__(self, sock: socket.socket, reader: Any, pool: ConnectionPool) -> None:
        self.sock = sock
        self.file = sock.fileno()
        self.reader = reader
        self.pool = pool
        self.pending: deque[int] = deque()
        self.unwritten: list[bytes] = []
        self.idle = True


@final
class ConnectionPool:
    """The connections of one stream."""

    __slots__ = ("connections", "idle", "next_at", "pending", "stream")

    def __init__(self, stream: LoadStream) -> None:
        self.stream = stream
        self.connections: list[LoadConnection] = []
        self.idle: list[LoadConnection] = []
        self.pending = 0
        self.next_at = 0

    def pick(self) -> LoadConnection | None:
        """Return an idle connection, else the next one with room, or None."""
        if self.idle and not self.stream.together:
            connection = self.idle.pop()
            connection.idle = False
            return connection
        depth = self.stream.depth
        if self.pending >= depth * len(self.connections):
            return None
        for _ in range(len(self.connections)):
            self.next_at = (self.next_at + 1) % len(self.connections)
            connection = self.connections[self.next_at]
            if len(connection.pending) < depth:
                return connection
        return None


def play(
    loads: Sequence[DrillLoad], meanwhile: Callable[[int], None] | None = None
) -> list[LoadRecord]:
    """Send each load from a process of its own, all from one instant on; return their records.

    `meanwhile` gets that instant, and does here what is to happen while they send.
    """
    with ExitStack() as stack:
        # One process a pool, so that what was prepared is where it is to be played.
        pools = [stack.enter_context(process_pool(1)) for _ in loads]
        for ready in [pool.submit(_prepare, load) for pool, load in zip(pools, loads, strict=True)]:
            ready.result()
        begin_us = now_us() + BEGIN_US
        playing = [pool.submit(_play, begin_us) for pool in pools]
        if meanwhile is not None:
            meanwhile(begin_us)
        return [one.result() for one in playing]


_prepared: list[Generator] = []


def _prepare(load: DrillLoad) -> None:
    generator = Generator(load, schedule(load))
    generator.connect()
    _prepared.append(generator)


def _play(begin_us: int) -> LoadRecord:
    generator = _prepared.pop()
    gc.collect()
    gc.disable()  # nothing that is made below leaves rings behind
    try:
        generator.play(begin_us)
    finally:
        gc.enable()
        generator.close()
    return generator.record()


@final
class Generator:
    """Sends one load."""

    def __init__(self, load: DrillLoad, plan: Schedule) -> None:
        self._load = load
        self._plan = plan
        count = len(plan.due_us)
        self._took = array("q", bytes(8 * count))
        self._results = array("B", bytes(count))
        self._late = array("q", bytes(8 * count))
        self._pools = [ConnectionPool(stream) for stream in load.streams]
        self._connections: dict[int, LoadConnection] = {}
        self._unflushed: list[LoadConnection] = []
        self._error_words: dict[str, int] = {}
        self._epoll = select.epoll()
        self._begin_us = 0
        self._busy = 0.0
        self._pending = 0
        self._lost = 0

    def connect(self) -> None:
        """Open all connections, one after the other, and send their greetings."""
        for pool in self._pools:
            stream = pool.stream
            for number in range(stream.connections):
                port = stream.ports[number % len(stream.ports)]
                sock = connect(port, stream.greeting)
                connection = LoadConnection(sock, new_reader(), pool)
                pool.connections.append(connection)
                pool.idle.append(connection)
                self._connections[connection.file] = connection
                self._epoll.register(connection.file, select.EPOLLIN)

    def play(self, begin_us: int) -> None:
        """Send all that is due from that instant on, and read all replies, until both end."""
        self._begin_us = begin_us
        load, due = self._load, self._plan.due_us
        count, at = len(due), 0
        end_us = load.span_us + load.settle_us
        files = [self._epoll.fileno()]
        wait_us = begin_us - now_us()
        if wait_us > 0:
            select.select((), (), (), wait_us / 1e6)
        began_cpu_s, began_us = _cpu_s(), now_us()
        while True:
            elapsed_us = now_us() - begin_us
            while at < count and due[at] <= elapsed_us:
                self._send(at, elapsed_us)
                at += 1
            if self._unflushed:
                self._flush()
            if at == count and (not self._pending or elapsed_us >= end_us):
                break
            wait_us = end_us - elapsed_us
            if at < count:
                wait_us = max(due[at] - elapsed_us, BATCH_US)
            if wait_us > _SPIN_US:
                # epoll itself waits in whole milliseconds
                select.select(files, (), (), wait_us / 1e6)
            for file, mask in self._epoll.poll(0):
                self._read(self._connections[file], mask)
        passed_us = now_us() - began_us
        self._busy = (_cpu_s() - began_cpu_s) * 1e6 / max(passed_us, 1)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.sock.close()
        self._epoll.close()

    def record(self) -> LoadRecord:
        """Return the record."""
        due, streams = self._plan.due_us, self._plan.streams
        records = {
            stream.name: StreamRecord(stream.timeout_us, array("q"), array("q"), array("B"))
            for stream in self._load.streams
        }
        rows = [records[stream.name] for stream in self._load.streams]
        for at, number in enumerate(streams):
            row = rows[number]
            row.due_us.append(due[at])
            row.took_us.append(self._took[at])
            row.results.append(self._results[at])
        late = quantile(self._late, 0.99) if due else 0.0
        return LoadRecord(
            records,
            tuple(self._error_words),
            late_p99_us=int(late),
            busy=self._busy,
            unsent=self._results.count(UNSENT),
            lost=self._lost,
        )

    def _send(self, at: int, elapsed_us: int) -> None:
        pool = self._pools[self._plan.streams[at]]
        if pool.stream.together and self._unflushed and self._unflushed[-1].pool is pool:
            connection: LoadConnection | None = self._unflushed[-1]
            assert connection is not None
            if len(connection.pending) >= pool.stream.depth:
                connection = pool.pick()
        else:
            connection = pool.pick()
        if connection is None:
            return  # it stays unsent
        if not connection.unwritten:
            self._unflushed.append(connection)
        connection.unwritten.append(pool.stream.commands[self._plan.commands[at]])
        connection.pending.append(at)
        pool.pending += 1
        self._pending += 1
        self._results[at] = UNANSWERED
        self._late[at] = elapsed_us - self._plan.due_us[at]

    def _flush(self) -> None:
        """Write once to each connection that has something to send."""
        for connection in self._unflushed:
            data = (
                connection.unwritten[0]
                if len(connection.unwritten) == 1
                else b"".join(connection.unwritten)
            )
            connection.unwritten = []
            try:
                sent = connection.sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._lose(connection)
                sent = len(data)
            if sent < len(data):
                connection.unwritten = [data[sent:]]
                self._epoll.modify(connection.file, select.EPOLLIN | select.EPOLLOUT)
        self._unflushed.clear()

    def _read(self, connection: LoadConnection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._epoll.modify(connection.file, select.EPOLLIN)
            self._unflushed.append(connection)
            self._flush()
        if not mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data = connection.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(connection)
            return
        reader, pending = connection.reader, connection.pending
        reader.feed(data)
        elapsed_us = now_us() - self._begin_us
        due, took, results = self._plan.due_us, self._took, self._results
        pool = connection.pool
        reply = reader.gets()
        while reply is not False:
            at = pending.popleft()
            took[at] = elapsed_us - due[at]
            word = error_word(reply)
            results[at] = self._number(word) if word else SERVED
            self._pending -= 1
            pool.pending -= 1
            reply = reader.gets()
        if not pending and not connection.idle:
            connection.idle = True
            pool.idle.append(connection)

    def _lose(self, connection: LoadConnection) -> None:
        """Give up a connection that was closed: its pending requests stay unanswered."""
        if connection not in connection.pool.connections:
            return
        self._lost += 1
        self._pending -= len(connection.pending)
        connection.pool.pending -= len(connection.pending)
        connection.pending.clear()
        connection.pool.connections.remove(connection)
        if connection in connection.pool.idle:
            connection.pool.idle.remove(connection)
        self._epoll.unregister(connection.file)

    def _number(self, word: str) -> int:
        """Return the number of an error's first word."""
        number = self._error_words.get(word)
        if number is None:
            if len(self._error_words) >= ERROR_WORDS_MAX:
                word = "other"
            number = self._error_words.setdefault(word, FIRST_ERROR + len(self._error_words))
        return number


def new_reader() -> Any:
    """Return hiredis's reader; an error reply is an `ErrorText`, an incomplete reply is False."""
    try:
        import hiredis  # noqa: PLC0415 - it comes with an extra
    except ModuleNotFoundError:
        raise MissingPackage("hiredis", "kv") from None
    return hiredis.Reader(replyError=ErrorText, notEnoughData=False)


def connect(port: int, greeting: tuple[bytes, ...]) -> socket.socket:
    """Open a connection, greet, and leave it without blocking."""
    try:
        sock = socket.create_connection((HOST, port), HELLO_S_MAX)
    except OSError as error:
        raise Unavailable(f"{HOST}:{port}", str(error)) from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for reply in exchange(sock, *greeting):
            if isinstance(reply, ErrorText):
                raise Unavailable(f"{HOST}:{port}", str(reply))  # noqa: TRY301 - it closes, then
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def exchange(sock: socket.socket, *commands: bytes) -> list[Any]:
    """Send these and return their replies: for preparation and inspection, not for load."""
    reader = new_reader()
    replies: list[Any] = []
    try:
        sock.sendall(b"".join(commands))
        while len(replies) < len(commands):
            data = sock.recv(_READ_BYTES)
            if not data:
                raise Unavailable("the dispatcher", "it has hung up")
            reader.feed(data)
            reply = reader.gets()
            while reply is not False:
                replies.append(reply)
                reply = reader.gets()
    except OSError as error:
        raise Unavailable("the dispatcher", str(error)) from None
    return replies


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
