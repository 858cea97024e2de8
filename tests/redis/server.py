"""One Redis or Valkey server: in plain, with a password, with TLS, on a Unix socket.

How it is set up and how it is brought back to its start after a test lives here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from redis import RedisError

from tests.redis.builds import Build
from tests.redis.certificates import Certificates, make_certificates
from tests.redis.members import HOST, RedisMembers


class RedisServer(RedisMembers):
    """One server, on a port and on a Unix socket."""

    member = "server"

    def __init__(
        self,
        build: Build | None = None,
        *,
        durable: bool = False,
        password: str | None = None,
        users: Sequence[str] = (),
        tls: bool = False,
        settings: Sequence[str] = (),
    ) -> None:
        """`users` as in an ACL file, such as `"ann on >secret ~* &* +@all"`."""
        more = [*settings, *(f"user {user}" for user in users)]
        super().__init__(1, build, durable=durable, password=password, settings=more)
        self.tls = tls
        self.certificates: Certificates | None = None
        self._as_started: tuple[Any, Any] | None = None

    @property
    def port(self) -> int:
        """The only port: with TLS, if it has TLS, and else without."""
        return self.ports[1]

    @property
    def socket(self) -> Path:
        """The Unix socket's path; it asks for the password too, but not for TLS."""
        return self.folder / "redis.sock"

    @property
    def url(self) -> str:
        """With the password of the default user, if there is one."""
        who = f":{quote(self.password, safe='')}@" if self.password else ""
        trust = f"?ssl_ca_certs={self.certificates.authority}" if self.certificates else ""
        return f"redis{'s' if self.tls else ''}://{who}{HOST}:{self.port}/0{trust}"

    @property
    def patient_url(self) -> str:
        """For tests that are about something else than the time-out of a store."""
        return f"{self.url}{'&' if '?' in self.url else '?'}timeout_ms=20000"

    def __enter__(self) -> Self:
        super().__enter__()
        self._as_started = self._state()
        return self

    def _prepare(self) -> None:
        if self.tls:
            self.certificates = make_certificates(self.folder / "certificates")
        super()._prepare()

    def _lines(self, number: int) -> list[str]:
        lines = [*super()._lines(number), f"unixsocket {self.socket}"]
        if self.certificates:
            lines += [
                "port 0",  # the last one said is the one that holds
                f"tls-port {self.port}",
                f"tls-ca-cert-file {self.certificates.authority}",
                f"tls-cert-file {self.certificates.certificate}",
                f"tls-key-file {self.certificates.key}",
                "tls-auth-clients no",
            ]
        return lines

    def _credentials(self, number: int) -> dict[str, Any]:
        trust: dict[str, Any] = {}
        if self.certificates:
            trust = {"ssl": True, "ssl_ca_certs": str(self.certificates.authority)}
        return super()._credentials(number) | trust

    def _state(self) -> tuple[Any, Any]:
        return self.ask("CONFIG", "GET", "*"), self.ask("ACL", "LIST")

    def _tidy(self) -> None:
        try:
            as_started = self._state() == self._as_started
            if as_started:
                self.ask("FLUSHALL")
                self.ask("SCRIPT", "FLUSH")
        except RedisError:  # BUSY, or full, or it no longer lets us in
            as_started = False
        if not as_started:
            self.kill()
            self.restart(empty=True)
