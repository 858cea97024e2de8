"""Generator: a process that sends a load at its instants, and keeps what became of it.

Source: open-loop load generation as of wrk2 (Tene): latency is counted from the instant at which a
request was due, so a server that stalls cannot make its clients ask less, nor its stall be measured
once instead of a thousand times. What is due in the same turn leaves in one write a connection;
replies come in the order of the commands, and hiredis parses them. No event loop and no task a
request: the generator must stay cheap beside what it measures.

It looks how late it sends and how much of its time it works; a `Record` says when that is too much.
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

from sluicegate.command_line.process_pool import children
from sluicegate.contracts.errors import MissingPackage, SluicegateError, Unavailable
from sluicegate.lab.drills.load import Load, Schedule, Stream, schedule
from sluicegate.lab.drills.record import (
    FIRST_WORD,
    SERVED,
    UNANSWERED,
    UNSENT,
    Record,
    Told,
)
from sluicegate.lab.measures import quantile
from sluicegate.system import now_us

HOST: Final = "127.0.0.1"
HELLO_S_MAX: Final = 10.0  # for one connection to be made and greeted
BEGIN_US: Final = 100_000  # from when all are ready to the first instant
TURN_US: Final = 200  # what is due within is sent together
WORDS_MAX: Final = 200  # kinds of errors that are told apart
NIL: Final = "NIL"
_READ_BYTES: Final = 1 << 18
_SPIN_US: Final = 50


class ErrorText(SluicegateError):  # noqa: N818 - it names the thing
    """An error reply."""


@final
class Line:
    """One connection: the numbers of what is under way, in the order of their replies."""

    __slots__ = ("file", "idle", "number", "out", "owed", "pool", "reader", "sock")

    def __init__(self, sock: socket.socket, reader: Any, pool: Pool) -> None:
        self.sock = sock
        self.file = sock.fileno()
        self.reader = reader
        self.pool = pool
        self.owed: deque[int] = deque()
        self.out: list[bytes] = []
        self.idle = True


@final
class Pool:
    """The connections of one stream."""

    __slots__ = ("idle", "lines", "owed", "stream", "turn")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.lines: list[Line] = []
        self.idle: list[Line] = []
        self.owed = 0
        self.turn = 0

    def pick(self) -> Line | None:
        """Who sends the next: one that owes nothing, else the next in turn that has room."""
        if self.idle and not self.stream.together:
            line = self.idle.pop()
            line.idle = False
            return line
        depth = self.stream.depth
        if self.owed >= depth * len(self.lines):
            return None
        for _ in range(len(self.lines)):
            self.turn = (self.turn + 1) % len(self.lines)
            line = self.lines[self.turn]
            if len(line.owed) < depth:
                return line
        return None


def play(loads: Sequence[Load], meanwhile: Callable[[int], None] | None = None) -> list[Record]:
    """Each load by a process of its own, all from one instant on; their records.

    `meanwhile` is told that instant, and does here what is to happen while they send.
    """
    with ExitStack() as stack:
        # One process a pool, so that what was prepared is where it is to be played.
        pools = [stack.enter_context(children(1)) for _ in loads]
        for ready in [pool.submit(_prepare, load) for pool, load in zip(pools, loads, strict=True)]:
            ready.result()
        begin_us = now_us() + BEGIN_US
        playing = [pool.submit(_play, begin_us) for pool in pools]
        if meanwhile is not None:
            meanwhile(begin_us)
        return [one.result() for one in playing]


_prepared: list[Generator] = []


def _prepare(load: Load) -> None:
    generator = Generator(load, schedule(load))
    generator.connect()
    _prepared.append(generator)


def _play(begin_us: int) -> Record:
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
    """One load."""

    __slots__ = (
        "_became",
        "_begin_us",
        "_busy",
        "_epoll",
        "_late",
        "_lines",
        "_load",
        "_lost",
        "_owed",
        "_plan",
        "_pools",
        "_took",
        "_touched",
        "_words",
    )

    def __init__(self, load: Load, plan: Schedule) -> None:
        self._load = load
        self._plan = plan
        count = len(plan.due_us)
        self._took = array("q", bytes(8 * count))
        self._became = array("B", bytes(count))
        self._late = array("q", bytes(8 * count))
        self._pools = [Pool(stream) for stream in load.streams]
        self._lines: dict[int, Line] = {}
        self._touched: list[Line] = []
        self._words: dict[str, int] = {}
        self._epoll = select.epoll()
        self._begin_us = 0
        self._busy = 0.0
        self._owed = 0
        self._lost = 0

    def connect(self) -> None:
        """Open and greet all connections, one after the other."""
        for pool in self._pools:
            stream = pool.stream
            for number in range(stream.connections):
                port = stream.ports[number % len(stream.ports)]
                line = Line(_connected(port, stream.hello), new_reader(), pool)
                pool.lines.append(line)
                pool.idle.append(line)
                self._lines[line.file] = line
                self._epoll.register(line.file, select.EPOLLIN)

    def play(self, begin_us: int) -> None:
        """From that instant on send all that is due and read all that comes, until both end."""
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
            if self._touched:
                self._flush()
            if at == count and (not self._owed or elapsed_us >= end_us):
                break
            wait_us = end_us - elapsed_us
            if at < count:
                wait_us = max(due[at] - elapsed_us, TURN_US)
            if wait_us > _SPIN_US:
                # epoll itself waits in whole milliseconds
                select.select(files, (), (), wait_us / 1e6)
            for file, mask in self._epoll.poll(0):
                self._read(self._lines[file], mask)
        passed_us = now_us() - began_us
        self._busy = (_cpu_s() - began_cpu_s) * 1e6 / max(passed_us, 1)

    def close(self) -> None:
        """Hang up."""
        for line in self._lines.values():
            line.sock.close()
        self._epoll.close()

    def record(self) -> Record:
        """What there is to tell."""
        due, streams = self._plan.due_us, self._plan.streams
        told = {
            stream.name: Told(stream.timeout_us, array("q"), array("q"), array("B"))
            for stream in self._load.streams
        }
        rows = [told[stream.name] for stream in self._load.streams]
        for at, number in enumerate(streams):
            row = rows[number]
            row.due_us.append(due[at])
            row.took_us.append(self._took[at])
            row.became.append(self._became[at])
        late = quantile(self._late, 0.99) if due else 0.0
        return Record(
            told,
            tuple(self._words),
            late_p99_us=int(late),
            busy=self._busy,
            unsent=self._became.count(UNSENT),
            lost=self._lost,
        )

    def _send(self, at: int, elapsed_us: int) -> None:
        pool = self._pools[self._plan.streams[at]]
        if pool.stream.together and self._touched and self._touched[-1].pool is pool:
            line: Line | None = self._touched[-1]
            assert line is not None
            if len(line.owed) >= pool.stream.depth:
                line = pool.pick()
        else:
            line = pool.pick()
        if line is None:
            return  # it stays unsent
        if not line.out:
            self._touched.append(line)
        line.out.append(pool.stream.commands[self._plan.commands[at]])
        line.owed.append(at)
        pool.owed += 1
        self._owed += 1
        self._became[at] = UNANSWERED
        self._late[at] = elapsed_us - self._plan.due_us[at]

    def _flush(self) -> None:
        """One write for each connection that has something to say."""
        for line in self._touched:
            data = line.out[0] if len(line.out) == 1 else b"".join(line.out)
            line.out = []
            try:
                sent = line.sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop(line)
                sent = len(data)
            if sent < len(data):
                line.out = [data[sent:]]
                self._epoll.modify(line.file, select.EPOLLIN | select.EPOLLOUT)
        self._touched.clear()

    def _read(self, line: Line, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._epoll.modify(line.file, select.EPOLLIN)
            self._touched.append(line)
            self._flush()
        if not mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data = line.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(line)
            return
        reader, owed = line.reader, line.owed
        reader.feed(data)
        elapsed_us = now_us() - self._begin_us
        due, took, became = self._plan.due_us, self._took, self._became
        pool = line.pool
        reply = reader.gets()
        while reply is not False:
            at = owed.popleft()
            took[at] = elapsed_us - due[at]
            if reply is None or isinstance(reply, ErrorText):
                became[at] = self._number(reply)
            else:
                became[at] = SERVED
            self._owed -= 1
            pool.owed -= 1
            reply = reader.gets()
        if not owed and not line.idle:
            line.idle = True
            pool.idle.append(line)

    def _drop(self, line: Line) -> None:
        """The other side has closed it: what it owed stays unanswered."""
        if line not in line.pool.lines:
            return
        self._lost += 1
        self._owed -= len(line.owed)
        line.pool.owed -= len(line.owed)
        line.owed.clear()
        line.pool.lines.remove(line)
        if line in line.pool.idle:
            line.pool.idle.remove(line)
        self._epoll.unregister(line.file)

    def _number(self, reply: ErrorText | None) -> int:
        """The number of an error's first word."""
        word = NIL if reply is None else str(reply).partition(" ")[0]
        number = self._words.get(word)
        if number is None:
            if len(self._words) >= WORDS_MAX:
                word = "other"
            number = self._words.setdefault(word, FIRST_WORD + len(self._words))
        return number


def new_reader() -> Any:
    """hiredis's, which tells an error by its type and what has not come whole by False."""
    try:
        import hiredis  # noqa: PLC0415 - it comes with an extra
    except ModuleNotFoundError:
        raise MissingPackage("hiredis", "kv") from None
    return hiredis.Reader(replyError=ErrorText, notEnoughData=False)


def _connected(port: int, hello: tuple[bytes, ...]) -> socket.socket:
    try:
        sock = socket.create_connection((HOST, port), HELLO_S_MAX)
    except OSError as error:
        raise Unavailable(f"{HOST}:{port}", str(error)) from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for reply in ask(sock, *hello):
            if isinstance(reply, ErrorText):
                raise Unavailable(f"{HOST}:{port}", str(reply))  # noqa: TRY301 - it closes, then
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def ask(sock: socket.socket, *commands: bytes) -> list[Any]:
    """Say these, and wait for all of their replies: for who prepares and looks, not for load."""
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
