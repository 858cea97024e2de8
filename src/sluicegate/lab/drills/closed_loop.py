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
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from sluicegate.command_line.process_pool import process_pool
from sluicegate.lab.charts import Panel
from sluicegate.lab.drills import generator
from sluicegate.lab.drills.drill import LAYERS, DrillOutcome, DrillSetting, note_latency
from sluicegate.lab.drills.generator import new_reader
from sluicegate.lab.drills.load import CONNECTIONS_MAX, DEPTH_MAX, DrillLoad, LoadStream
from sluicegate.lab.drills.record import LoadRecord, error_word, slice_of
from sluicegate.policies.settings import within
from sluicegate.system import now_us

SERVED: Final = ""
_READ_BYTES: Final = 1 << 16
_POLL_S: Final = 0.05
BIN_US: Final = 500_000
_NICE: Final = 10  # behind whoever measures


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """One population of callers that never pause."""

    port: int
    commands: tuple[bytes, ...]  # in turns
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
        self._connections: dict[int, tuple[socket.socket, Any]] = {}
        self._next = 0
        for _ in range(loop.connections):
            sock = generator.connect(loop.port, loop.greeting)
            self._connections[sock.fileno()] = (sock, new_reader())
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def press(self, span_us: int) -> ClosedLoopRecord:
        answers: dict[str, int] = {}
        loop = self._loop
        began_us = now_us()
        for sock, _ in self._connections.values():
            sock.sendall(self._take(loop.depth))
        while self._connections and now_us() - began_us < span_us:
            for file, _ in self._epoll.poll(_POLL_S):
                self._answer(file, answers)
        return ClosedLoopRecord(answers, loop.connections - len(self._connections), span_us)

    def close(self) -> None:
        for sock, _ in self._connections.values():
            sock.close()
        self._epoll.close()

    def _answer(self, file: int, answers: dict[str, int]) -> None:
        """Read the replies of a connection, and send as many requests again."""
        sock, reader = self._connections[file]
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
            sock.sendall(self._take(count))

    def _take(self, count: int) -> bytes:
        """Return the next commands."""
        commands = self._loop.commands
        at = self._next
        self._next = at + count
        return b"".join(commands[number % len(commands)] for number in range(at, at + count))


def play_each(
    setting: DrillSetting,
    stream: LoadStream,
    warm_us: int,
    who: str,
    loops: Mapping[str, tuple[ClosedLoop, float]],
    served_min: float = 0.0,
) -> DrillOutcome:
    """Play the stream of `who` alone and beside each loop, where its p99 has a bar.

    It may be so many milliseconds above what it is alone; `served_min` is the share of its requests
    that must be served.
    """
    outcome = DrillOutcome()
    control = setting.policy != LAYERS
    load = DrillLoad(streams=(stream,), span_us=warm_us + setting.us(), seed=setting.seed)
    span = {"begin_us": warm_us, "end_us": warm_us + setting.us()}
    setting.progress(f"{who} alone")
    [alone] = generator.play([load])
    alone_ms = note_latency(outcome, alone, span, "alone")
    curves = {"alone": slice_of(alone, **span).times_ms(BIN_US)}
    for what, (loop, more_ms) in loops.items():
        setting.progress(f"{who} beside {what}")
        beside, others = play_beside(load, loop)
        p99_ms = note_latency(outcome, beside, span, f"beside {what}")
        outcome.figures[f"beside {what}: others served a second"] = others.served_per_s
        outcome.figures[f"beside {what}: others refused a second"] = others.refused_per_s
        outcome.add_bar(
            f"{who}'s p99 beside {what}",
            p99_ms,
            at_most=alone_ms + more_ms,
            unit="ms",
            must_miss=control,
        )
        part = slice_of(beside, **span)
        if served_min and not control:
            outcome.add_bar(
                f"{who} served beside {what}", part.success, at_least=served_min, unit="%"
            )
        curves[f"beside {what}"] = part.times_ms(BIN_US)
    outcome.panels = [Panel(f"p99 of {who}", "ms", "s", curves, log_y=True)]
    return outcome
