"""Thread connection: one socket to a server, for whichever thread sends at the moment.

Bytes go out, replies come in, and each wait has a bound. What is asked is not known here; nor is
who waits for it. What timed out is `owed`: its late reply is read before the next one's.

All that is sent at once ends with a guard, as on a `RedisConnection`: the replies before it are
believed once it is answered with its own text.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, final

import hiredis

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.redis.connection import (
    GuardWords,
    Reply,
    are_errors,
    connect_error,
    greeting,
    guard_command,
    guard_failure,
    keep_alive,
    tls_context,
)
from sluicegate.stores.redis.settings import RedisSettings
from sluicegate.wire.resp import ErrorReply, command, error_reply

# A connection takes some round trips where a call takes one. The first connection of all has the
# whole `connect_timeout_us`; later ones are made while somebody waits for an answer.
CONNECT_TRIPS: Final = 4
IDLE_US: Final = 10_000  # after so long a connection is looked at before it is used
MORE: Final = object()  # in place of a reply that is not whole yet
_READ_BYTES: Final = 65_536
_PLAIN_SOCKET: Final = socket.socket if socket.socket.__module__ == "socket" else None


@final
class ThreadConnection:
    """A connection that is made when it is needed, and again after it was lost."""

    __slots__ = (
        "_attempted",
        "_clock",
        "_endpoint",
        "_guard",
        "_guard_words",
        "_reader",
        "_settings",
        "_socket",
        "_tls",
        "_unread",
        "_waits_in_kernel",
        "owed",
        "owed_us",
        "replied_us",
        "timeout_us",
        "what",
    )

    def __init__(self, settings: RedisSettings, clock: Callable[[], int]) -> None:
        self._endpoint = settings.endpoints[0]
        self.what = f"{settings.kind} at {self._endpoint}"
        self._settings = settings
        self._clock = clock
        self.timeout_us = settings.timeout_us_max
        self._tls: ssl.SSLContext | None = None
        self._socket: socket.socket | None = None
        self._waits_in_kernel = False
        self._attempted = False  # to connect, at least once and to the end
        self._reader = _new_reader()
        self._guard_words = GuardWords()
        self._guard = b""  # the text of the last one
        self._unread: list[Reply] = []  # read, but not returned yet
        self.owed = 0  # replies to calls and guards that have timed out
        self.owed_us = 0  # when the first of these calls was sent
        self.replied_us = 0

    @property
    def open(self) -> bool:
        """Whether there is one."""
        return self._socket is not None

    def is_fresh(self) -> bool:
        """Return whether it can be used without a look at it: it replied just now, to all calls."""
        if self._socket is None or self.owed:
            return False
        return self._clock() - self.replied_us < IDLE_US

    def make_ready(self) -> None:
        """Connect unless it is; what was idle may have ended meanwhile."""
        sock = self._socket
        if sock is not None and not self.owed and not self.is_fresh() and _is_readable(sock):
            self.close()  # it has ended, or says what nobody asked
        if self._socket is None:
            self._connect()

    def send(self, payload: bytes) -> None:
        """Send all of it and a guard; after a failure an unknown part has been sent."""
        sock = self._socket
        if sock is None:
            raise _closed()
        try:
            self._guard = self._guard_words.next()
            sock.sendall(payload + guard_command(self._guard))
        except OSError:
            self.close()
            raise

    def reply_at_once(self) -> Any:
        """Return the list that comes with the next read and is proved by its guard.

        MORE if it is anything else, or is not all there: then `reply` returns it part by part.
        """
        sock = self._socket
        if sock is None:
            raise _closed()
        self._reader.feed(sock.recv(_READ_BYTES))
        while (reply := self._reader.gets()) is not MORE:
            self._unread.append(reply)
            if len(self._unread) == 2:
                break
        if len(self._unread) < 2 or type(self._unread[0]) is not list:
            return MORE
        if self._unread[1] != self._guard:
            return MORE
        reply, self._unread = self._unread[0], []
        return reply

    def check_guard(self, replies: Sequence[Reply], until_us: int) -> None:
        """Read the reply to the guard; unless it proves the others, close, and raise."""
        reply = self.reply(until_us)
        if reply != self._guard and not are_errors(replies, reply):
            self.close()
            raise Unavailable(self.what, guard_failure(reply))

    def close(self) -> None:
        """Let go of it; what is owed is never read."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def wait_at_most(self, timeout_us: int) -> None:
        """Bound each wait by this time-out from now on."""
        if timeout_us != self.timeout_us:
            self.timeout_us = timeout_us
            if self._socket is not None:
                self._set_timeout(self._socket)

    def shut_down(self) -> None:
        """End it from another thread: that wakes who reads from it, and closes it then."""
        sock = self._socket
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """In a child, after a fork: close this process's copy of the socket, and nothing else."""
        if self._socket is not None:
            self._socket.close()

    def reply(self, until_us: int) -> Any:
        """Return the next reply; `TimeoutError` if it has not come by then."""
        reader = self._reader
        reply = self._unread.pop(0) if self._unread else MORE
        while True:
            if reply is MORE:
                reply = reader.gets()
            if reply is MORE:
                if reader.len() > self._settings.reply_bytes_max:
                    self.close()
                    most = self._settings.reply_bytes_max
                    raise Unavailable(self.what, f"a reply is over {most} bytes (reply_bytes_max)")
                reader.feed(self._read(until_us))
            elif type(reply) is not hiredis.PushNotification:
                return reply
            else:
                reply = MORE

    def _read(self, until_us: int) -> bytes:
        sock = self._socket
        if sock is None:
            raise _closed()
        try:
            late = self._clock() > until_us
            data = self._read_now(sock) if late else sock.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError):
            # The program may be what was late: look once more at what has come.
            data = self._read_now(sock)
        if not data:
            raise _closed()
        self.replied_us = self._clock()
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
            sock.settimeout(self.timeout_us / 1e6)

    def _set_timeout(self, sock: socket.socket) -> None:
        """Bound each wait: by the kernel, which spares a call of it, if nothing is in between."""
        self._waits_in_kernel = type(sock) is socket.socket and socket.socket is _PLAIN_SOCKET
        if not self._waits_in_kernel:
            sock.settimeout(self.timeout_us / 1e6)
            return
        seconds, us = divmod(self.timeout_us, 1_000_000)
        sock.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, us))

    def _connect(self) -> None:
        settings, limit_s = self._settings, self._settings.connect_timeout_us / 1e6
        if self._attempted:
            limit_s = min(limit_s, CONNECT_TRIPS * self.timeout_us / 1e6)
        self._attempted = True
        self._reader, self.owed, self._unread = _new_reader(), 0, []
        self._waits_in_kernel = False
        sock: socket.socket | None = None
        try:
            sock = self._open(limit_s)
            commands = [command(*words) for words in greeting(settings)]
            sock.sendall(b"".join(commands))
            self._socket, until_us = sock, self._clock() + round(limit_s * 1e6)
            for _ in commands:
                reply = self.reply(until_us)
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
            else self._tls.wrap_socket(
                sock, server_hostname=self._settings.tls_name or endpoint.host
            )
        )


def _new_reader() -> hiredis.Reader:
    return hiredis.Reader(replyError=error_reply, notEnoughData=MORE)


def _is_readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def _closed() -> ConnectionResetError:
    return ConnectionResetError(None, "it was closed")
