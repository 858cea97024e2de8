"""A real server that speaks S3, as a child process on a free port of the loopback."""

from __future__ import annotations

import http.client
import sys
from itertools import count
from pathlib import Path

from tests.engines.child import Child, free_port, until

HOST = "127.0.0.1"
START_S_MAX = 30.0
PAGE = 50  # names that one answer lists; 1,000 would take seconds to write
CHILD = Path(__file__).with_name("s3_child.py")
SECRETS = {"AWS_ACCESS_KEY_ID": "AKIAOFTHETESTS", "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests"}
_numbers = count()


class S3Server:
    """Started when made; everything in it is in its memory and ends with it."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port(HOST)
        self.bucket = "rules"
        self.page = PAGE
        self.child = self._start()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def url(self, *, port: int = 0, settings: str = "") -> str:
        """The URL of a store that nobody else has used."""
        return (
            f"s3://{self.bucket}/of-test/{next(_numbers)}?endpoint=http://{HOST}:"
            f"{port or self.port}&region=eu-west-1&allow_http=1{settings}"
        )

    def restart(self) -> None:
        """As after a crash: on the same port, with an empty bucket."""
        self.child.kill()
        self.child = self._start()

    def stop(self) -> None:
        self.child.kill()

    def ask(self, method: str, path: str, body: bytes = b"") -> int:
        """One bare request, and the status of its answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def _start(self) -> Child:
        command = [sys.executable, str(CHILD), str(self.port), str(self.page)]
        child = Child("moto", command, self.folder / f"moto-{self.port}.log")
        until(
            lambda: self.ask("PUT", f"/{self.bucket}") == 200,
            "the S3 server",
            START_S_MAX,
            [child],
        )
        return child
