"""Load: what a generator is to send, when and where to, as a value that goes to another process.

A *stream* is one population of callers: where they send, as whom, how often, and what. Its commands
are encoded before the first is due, and which of them comes at which instant is drawn before too;
so a generator has only to send. It is open-loop: an instant never waits for an answer.

Bounds: `REQUESTS_MAX` of a load, which are held as arrays, and `CONNECTIONS_MAX` of a generator.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.random_source import RandomSource
from sluicegate.policies.settings import within

REQUESTS_MAX: Final = 5_000_000
CONNECTIONS_MAX: Final = 4_000
DEPTH_MAX: Final = 1_024  # commands under way on one connection


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStream:
    """One population of callers.

    Each command goes to a connection that has none under way while there is one, as callers who
    share nothing would send it; then to the next in turn, behind at most `depth` others. With
    `together` those that are due at once share one connection and one write, as a client that
    pipelines sends them.
    """

    name: str
    ports: tuple[int, ...]  # connections are spread evenly over them
    commands: tuple[bytes, ...]  # each is as likely as the next
    arrivals: Arrivals
    timeout_us: int  # an answer that comes later is of no use
    greeting: tuple[bytes, ...] = ()  # sent on each connection first; an error reply ends the run
    connections: int = 32
    depth: int = 16
    together: bool = False

    def __post_init__(self) -> None:
        where = f"stream {self.name}"
        if not self.ports or not self.commands:
            raise BadValue(where, self.name, "give it a port and a command at least")
        within(f"{where}: connections", self.connections, 1, CONNECTIONS_MAX)
        within(f"{where}: depth", self.depth, 1, DEPTH_MAX)
        if self.timeout_us < 1:
            raise BadValue(f"{where}: timeout_us", self.timeout_us, "give a microsecond at least")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DrillLoad:
    """All that one generator sends in `span_us`; answers are waited for `settle_us` more."""

    streams: tuple[LoadStream, ...]
    span_us: int
    settle_us: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.streams:
            raise BadValue("load.streams", self.streams, "give one at least")
        names = [stream.name for stream in self.streams]
        if len(set(names)) < len(names):
            raise BadValue("load.streams", names, "give each stream a name of its own")
        if sum(stream.connections for stream in self.streams) > CONNECTIONS_MAX:
            raise BadValue("load.streams", names, f"at most {CONNECTIONS_MAX:,} connections")
        if self.span_us < 1 or self.settle_us < 0:
            raise BadValue("load.span_us", self.span_us, "give a microsecond at least")


class Schedule(NamedTuple):
    """When each request of a load is due and what it is, in the order of their instants."""

    due_us: array[int]  # from the begin on
    streams: array[int]
    commands: array[int]  # which of its stream's


def schedule(load: DrillLoad) -> Schedule:
    """Return the schedule of a load, the same for the same seed."""
    random_source = RandomSource(load.seed)
    rows: list[tuple[int, int, int]] = []
    for number, stream in enumerate(load.streams):
        pick, count = random_source.of(f"commands/{stream.name}").draw, len(stream.commands)
        instants = stream.arrivals.instants_us(random_source.of(f"arrivals/{stream.name}"))
        for at_us in takewhile(lambda at_us: at_us < load.span_us, instants):
            rows.append((at_us, number, int(pick() * count)))
            if len(rows) > REQUESTS_MAX:
                raise BadValue(
                    "load", f"more than {REQUESTS_MAX:,} requests", "send fewer, or for less long"
                )
    rows.sort()
    return Schedule(
        array("q", [row[0] for row in rows]),
        array("H", [row[1] for row in rows]),
        array("I", [row[2] for row in rows]),
    )
