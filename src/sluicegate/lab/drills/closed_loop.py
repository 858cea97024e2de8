"""Closed loop: callers that send the next request as soon as an answer is there, however many.

What a generator sends by the clock (`generator.py`) measures; this presses. Each connection has
`depth` requests under way for as long as it lasts: as much as the other side answers, never more.
It runs in a process of its own, which yields the processor to whoever measures beside it. Refusals
are answers like any other here, and are counted by their first words.
"""

from __future__ import annotations

import os
import select
import socket
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from sluicegate.command_line.process_pool import process_pool
from sluicegate.lab.drills import generator
from sluicegate.lab.drills.generator import new_reader
from sluicegate.lab.drills.grpc_calls import GrpcCall, GrpcNumbers, GrpcReplies
from sluicegate.lab.drills.load import CONNECTIONS_MAX, DEPTH_MAX, DrillLoad
from sluicegate.lab.drills.record import LoadRecord, error_word
from sluicegate.policies.settings import within
from sluicegate.system import now_us

SERVED: Final = ""
_READ_BYTES: Final = 1 << 16
_POLL_S: Final = 0.05
_NICE: Final = 10  # behind whoever measures


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """One population of callers that never pause."""

    port: int
    commands: tuple[bytes, ...] | tuple[GrpcCall, ...]  # in turns
    greeting: tuple[bytes, ...] = ()
    connections: int
    depth: int = 1  # requests under way on each

    def __post_init__(self) -> None:
        within("closed loop: connections", self.connections, 1, CONNECTIONS_MAX)
        within("closed loop: depth", self.depth, 1, DEPTH_MAX)


class ClosedLoopRecord(NamedTuple):
    """What was answered: `answers` by the first word of its error, "" for what was served."""

    answers: dict[str, int]
    lost: int  # connections that the other side closed
    span_us: int

    @property
    def served_per_s(self) -> float:
        """What was served, a second."""
        return self.answers.get(SERVED, 0) * 1e6 / self.span_us

    @property
    def refused_per_s(self) -> float:
        """What was answered otherwise, a second."""
        return sum(self.answers.values()) * 1e6 / self.span_us - self.served_per_s


def play_beside(load: DrillLoad, loop: ClosedLoop) -> tuple[LoadRecord, ClosedLoopRecord]:
    """Send a load by the clock while these callers press."""
    with process_pool(1) as pool:
        pool.submit(_prepare, loop).result()
        pressing: list[Future[ClosedLoopRecord]] = []
        [record] = generator.play(
            [load], lambda _begin_us: pressing.append(pool.submit(_press, load.span_us))
        )
        return record, pressing[0].result()


_prepared: list[_Callers] = []


def _prepare(loop: ClosedLoop) -> None:
    os.nice(_NICE)
    _prepared.append(_Callers(loop))


def _press(span_us: int) -> ClosedLoopRecord:
    callers = _prepared.pop()
    try:
        return callers.press(span_us)
    finally:
        callers.close()


@final
class _Callers:
    """All connections of a closed loop."""

    def __init__(self, loop: ClosedLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._connections: dict[int, tuple[socket.socket, Any, GrpcNumbers]] = {}
        self._next = 0
        for _ in range(loop.connections):
            grpc = isinstance(loop.commands[0], GrpcCall)
            sock = generator.connect(loop.port, loop.greeting, grpc=grpc)
            reader = GrpcReplies() if grpc else new_reader()
            self._connections[sock.fileno()] = (sock, reader, GrpcNumbers())
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def press(self, span_us: int) -> ClosedLoopRecord:
        answers: dict[str, int] = {}
        loop = self._loop
        began_us = now_us()
        for sock, _, numbers in self._connections.values():
            sock.sendall(self._take(loop.depth, numbers))
        while self._connections and now_us() - began_us < span_us:
            for file, _ in self._epoll.poll(_POLL_S):
                self._answer(file, answers)
        return ClosedLoopRecord(answers, loop.connections - len(self._connections), span_us)

    def close(self) -> None:
        for sock, _, _ in self._connections.values():
            sock.close()
        self._epoll.close()

    def _answer(self, file: int, answers: dict[str, int]) -> None:
        """Read the replies of a connection, and send as many requests again."""
        sock, reader, numbers = self._connections[file]
        try:
            data = sock.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._epoll.unregister(file)
            sock.close()
            del self._connections[file]
            return
        reader.feed(data)
        count = 0
        reply = reader.gets()
        while reply is not False:
            word = error_word(reply)
            answers[word] = answers.get(word, 0) + 1
            count += 1
            reply = reader.gets()
        if count:  # the buffer has room for what was just answered
            sock.sendall(self._take(count, numbers))

    def _take(self, count: int, numbers: GrpcNumbers) -> bytes:
        """The next commands, for this connection."""
        commands = self._loop.commands
        at = self._next
        self._next = at + count
        taken: list[bytes] = []
        for number in range(at, at + count):
            one = commands[number % len(commands)]
            taken.append(numbers.frame(one) if isinstance(one, GrpcCall) else one)
        return b"".join(taken)
