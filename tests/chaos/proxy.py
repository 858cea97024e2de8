"""A TCP proxy that breaks what it carries: `FaultyProxy` runs it in a separate process.

    python -m tests.chaos.proxy PORT [PORT ...]

It prints one listening port for each target port of 127.0.0.1, then obeys one command a line:

    pause | resume            carry nothing; carry what was kept
    delay MS                  carry each read that much later
    pieces | whole            write one to seven bytes at a time; write all at once
    reset                     end all connections by RST
    deaf                      existing and new connections stay open, and carry nothing
    hear                      new connections carry again; those that were deaf stay so
    drop | twice              lose the next reply, or send it twice
    lose BYTES                lose that much of what callers write next

Replies that name the ports of a cluster get the ports of the proxy instead.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import uvloop

# Whole replies that may be edited: strings, as ECHO, GET and guards are answered.
REPLY = re.compile(rb"(?:\$(\d+)\r\n[^\r\n]*|\+[^\r\n]*)\r\n")
ROOT = Path(__file__).parents[2]


class State:
    """The current faults."""

    def __init__(self) -> None:
        self.paused = False
        self.deaf = False
        self.pieces = False
        self.delay_s = 0.0
        self.edit = ""
        self.lost_bytes = 0
        self.own_ports: dict[bytes, bytes] = {}  # as integers of RESP
        self.ends: set[End] = set()
        self.draw = random.Random(1)

    def obey(self, line: str) -> None:
        word, _, value = line.strip().partition(" ")
        if word in ("pause", "resume"):
            self.paused = word == "pause"
        elif word in ("pieces", "whole"):
            self.pieces = word == "pieces"
        elif word == "delay":
            self.delay_s = float(value) / 1e3
        elif word in ("drop", "twice"):
            self.edit = word
        elif word == "lose":
            self.lost_bytes = int(value)
        elif word == "reset":
            for end in [*self.ends]:
                end.reset()
        elif word in ("deaf", "hear"):
            self.deaf = word == "deaf"
            for end in self.ends:
                end.deaf = end.deaf or self.deaf
        for end in [*self.ends]:
            end.pump()

    def edited(self, data: bytes) -> bytes:
        """Return the bytes of a server as the caller receives them."""
        for port, own in self.own_ports.items():
            data = data.replace(port, own)
        if self.edit in ("drop", "twice") and (reply := REPLY.search(data)) is not None:
            again = reply[0] if self.edit == "twice" else b""
            middle = reply.end() if again else reply.start()
            self.edit = ""
            return data[:middle] + again + data[reply.end() :]
        return data


class End(asyncio.Protocol):
    """One end of a carried connection; what it reads, the other writes."""

    def __init__(self, state: State, other: End | None = None) -> None:
        self.state = state
        self.other = other
        self.is_server = other is not None
        self.transport: Any = None
        self.queue: deque[tuple[float, bytes]] = deque()
        self.deaf = state.deaf
        self.due = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.state.ends.add(self)
        self.pump()

    def data_received(self, data: bytes) -> None:
        other = self.other
        if self.deaf or other is None:
            return
        if self.is_server:
            data = self.state.edited(data)
        elif self.state.lost_bytes:
            lost = min(self.state.lost_bytes, len(data))
            self.state.lost_bytes -= lost
            data = data[lost:]
        at = asyncio.get_running_loop().time() + self.state.delay_s
        other.queue.append((at, data))
        other.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()

    def pump(self) -> None:
        """Write what is to be written by now."""
        loop = asyncio.get_running_loop()
        while self.queue and self.transport is not None and not self.due and not self.deaf:
            at, data = self.queue[0]
            if self.state.paused:
                return
            wait_s = at - loop.time()
            size = self.state.draw.randrange(1, 8) if self.state.pieces else len(data)
            if wait_s <= 0:
                self.transport.write(data[:size])
                if size < len(data):
                    self.queue[0] = (at, data[size:])
                else:
                    self.queue.popleft()
            if wait_s > 0 or self.state.pieces:
                self.due = True
                loop.call_later(max(wait_s, 0.0), self.pump_on)

    def pump_on(self) -> None:
        self.due = False
        self.pump()

    def reset(self) -> None:
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


async def carry(ports: Sequence[int]) -> None:
    """Carry connections to these ports until the standard input ends."""
    loop, state = asyncio.get_running_loop(), State()

    def accept(port: int) -> End:
        caller = End(state)
        server = End(state, caller)
        caller.other = server
        state.ends.update((caller, server))  # both may be broken before they are connected
        work = loop.create_task(connect(caller, server, port))
        tasks.add(work)
        work.add_done_callback(tasks.discard)
        return caller

    async def connect(caller: End, server: End, port: int) -> None:
        try:
            await loop.create_connection(lambda: server, "127.0.0.1", port)
        except OSError:
            state.ends.discard(server)
            if caller.transport is not None:
                caller.transport.abort()

    tasks: set[asyncio.Task[None]] = set()
    listeners = [
        await loop.create_server(lambda port=port: accept(port), "127.0.0.1", 0)  # type: ignore[misc]
        for port in ports
    ]
    own = [listener.sockets[0].getsockname()[1] for listener in listeners]
    state.own_ports = {b":%d\r\n" % a: b":%d\r\n" % b for a, b in zip(ports, own, strict=True)}
    sys.stdout.write(" ".join(map(str, own)) + "\n")
    sys.stdout.flush()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        state.obey(line.decode())
        sys.stdout.write("ok\n")
        sys.stdout.flush()


class FaultyProxy:
    """The proxy in a separate process; `ports` lead to the target ports in their order."""

    def __init__(self, *ports: int) -> None:
        self._targets = ports
        self.ports: list[int] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, self._targets)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.ports = [int(port) for port in self._process.stdout.readline().split()]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)

    def tell(self, command: str) -> None:
        """Send one command, and wait until it is in effect."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


if __name__ == "__main__":
    uvloop.run(carry([int(port) for port in sys.argv[1:]]))
