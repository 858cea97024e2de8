"""Caller: asks one HTTP service on loopback, over connections that it keeps.

No library: the drill must stay cheap beside what it measures. It reads what HTTP/1.1 servers send:
a length, chunks, or all until the connection closes. A request that is given up closes its
connection, as a caller does that hangs up.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final, NamedTuple, final
from urllib.parse import urlsplit

from sluicegate.contracts.errors import BadValue
from sluicegate.system import now_us

HEAD_BYTES_MAX: Final = 65_536
BODY_BYTES_MAX: Final = 16 << 20
_SUCCESS: Final = range(200, 300)
_WITH_CONTENT: Final = frozenset({200, 203, 206})
_PORT_MAX: Final = 65_535


class LoopbackUrl(NamedTuple):
    """Where a service listens, and what to ask it for."""

    host: str
    port: int
    path: str


def loopback_url(field: str, text: str) -> LoopbackUrl:
    """Return a URL's parts; anything but http on this machine is refused."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        raise BadValue(field, text, "give http://127.0.0.1:PORT/path") from None
    if parts.scheme != "http" or not is_loopback(host):
        raise BadValue(field, text, "give http://127.0.0.1:PORT/path; a drill is for this machine")
    path = parts.path or "/"
    return LoopbackUrl(host, port, f"{path}?{parts.query}" if parts.query else path)


def loopback_address(field: str, text: str) -> tuple[str, int]:
    """Return the host and port of an address on this machine."""
    host, _, port = text.rpartition(":")
    if not is_loopback(host.strip("[]")) or not port.isdecimal() or int(port) > _PORT_MAX:
        raise BadValue(field, text, "give 127.0.0.1:PORT; a drill is for this machine")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether this is a name or an address of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class DrillAnswer(NamedTuple):
    """A status, and whether the body was as expected."""

    status: int
    expected: bool = True


@final
class HttpCaller:
    """Asks with GET; the connections of answers that were read whole are used again.

    A 2xx is as expected if its body contains `expect`. Without `expect`, it must have a body if the
    first answer of the path had one.
    """

    def __init__(self, host: str, port: int, patience_us: int, expect: bytes = b"") -> None:
        self._host = host
        self._port = port
        self._patience_us = patience_us
        self._expect = expect
        self._has_body: dict[str, bool] = {}
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, path: str) -> DrillAnswer:
        """Return the answer, or raise `TimeoutError`, `OSError` or `EOFError`."""
        began_us = now_us()
        async with asyncio.timeout(self._patience_us / 1_000_000):
            reader, writer, used = await self._connection()
            kept = False
            try:
                try:
                    status, body, kept = await self._exchange(reader, writer, path)
                except (ConnectionError, EOFError):
                    if not used:
                        raise
                    # It was closed while nobody used it, as servers do.
                    writer.close()
                    reader, writer = await self._open()
                    status, body, kept = await self._exchange(reader, writer, path)
            finally:
                if not kept:
                    writer.close()
        if kept:
            self._idle.append((reader, writer))
        # A busy event loop cancels late; who waits would have hung up by then all the same.
        if now_us() - began_us > self._patience_us:
            raise TimeoutError
        return DrillAnswer(status, self._is_expected(path, status, body))

    def _is_expected(self, path: str, status: int, body: bytes) -> bool:
        if self._expect and status in _SUCCESS:
            return self._expect in body
        if status not in _WITH_CONTENT:
            return True
        had_body = self._has_body.setdefault(path, bool(body))
        return bool(body) or not had_body

    def close(self) -> None:
        """Close what is kept."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bool]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer, True
            writer.close()
        return (*await self._open(), False)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port, limit=HEAD_BYTES_MAX)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str
    ) -> tuple[int, bytes, bool]:
        """Send it and read the answer; return status, body and whether the connection is kept."""
        writer.write(
            b"GET %s HTTP/1.1\r\nHost: %s:%d\r\nX-Sluicegate-Deadline-Ms: %d\r\n\r\n"
            % (path.encode(), self._host.encode(), self._port, self._patience_us // 1_000)
        )
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
        except asyncio.LimitOverrunError:
            raise ConnectionError("the head of the answer is too long") from None
        version, _, rest = head.partition(b" ")
        if not version.startswith(b"http/1.") or not rest[:3].isdigit():
            raise ConnectionError("the answer is not HTTP/1")
        fields = {
            name.strip(): value.strip()
            for name, _, value in (line.partition(b":") for line in rest.split(b"\r\n")[1:])
        }
        status = int(rest[:3])
        kept = version == b"http/1.1" and fields.get(b"connection") != b"close"
        body = b""
        if fields.get(b"transfer-encoding") == b"chunked":
            body = await _read_chunks(reader)
        elif b"content-length" in fields:
            body = await reader.readexactly(_size(fields[b"content-length"], 10))
        elif status not in {204, 304}:
            body = await _read_rest(reader)
            kept = False
        return status, body, kept


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := _size((await reader.readuntil(b"\r\n")).partition(b";")[0].strip(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
        _check_size(len(body))
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return bytes(body)


async def _read_rest(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while piece := await reader.read(HEAD_BYTES_MAX):
        body += piece
        _check_size(len(body))
    return bytes(body)


def _size(text: bytes, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        raise ConnectionError("a length in the answer is no number") from None
    _check_size(size)
    return size


def _check_size(size: int) -> None:
    if not 0 <= size <= BODY_BYTES_MAX:
        raise ConnectionError("the answer is too long")
