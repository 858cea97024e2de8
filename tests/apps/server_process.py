"""A server of ours as a user starts it: a process of its own, real sockets, a ready line."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.engines.child import PATIENCE_S, Child, free_port, until

STOP_S_MAX = PATIENCE_S


class ServerProcess:
    """One server; `port` is where all its languages are spoken."""

    app = ""
    host = "127.0.0.1"
    ready_s_max = PATIENCE_S

    def __init__(self, folder: Path, *flags: str, port: int = 0, wait: bool = True) -> None:
        self.port = port or free_port("127.0.0.1")
        self.log = folder / f"{self.app}-{self.port}.log"
        self.url = f"http://127.0.0.1:{self.port}"
        listen = [] if "--listen" in flags else ["--listen", f"127.0.0.1:{self.port}"]
        self.child = Child(f"sluicegate {self.app}", [*self.command(), *listen, *flags], self.log)
        if wait:
            what = f"sluicegate {self.app}"
            until(lambda: self.ready_line, what, self.ready_s_max, children=[self.child])

    def command(self) -> list[str]:
        """The words that start it."""
        return [sys.executable, "-m", "sluicegate.cli", self.app]

    @property
    def ready_line(self) -> str:
        """What it printed when it was ready; empty before that."""
        found = re.search(
            rf"^sluicegate {self.app} is ready.*$", self.log.read_text(), re.MULTILINE
        )
        return found[0] if found else ""

    def ask(
        self,
        path: str,
        body: object = None,
        *,
        token: str = "",
        context: ssl.SSLContext | None = None,
        method: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status, and the body read as JSON where it is JSON."""
        connection: http.client.HTTPConnection
        if context is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        else:
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=PATIENCE_S, context=context
            )
        sent = dict(headers or {})
        if token:
            sent["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, data, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        _, page = self.ask("/metrics")
        total = 0.0
        for line in page.splitlines():
            if line.startswith("#"):
                continue
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(
                f'{key}="{text}"' in series for key, text in labels.items()
            ):
                total += float(value)
        return total

    def signal(self, signum: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.child.pid, signum)

    def end(self) -> int | None:
        """Ask it to end, and its exit code."""
        if self.child.exit_code is None:
            self.signal(signal.SIGTERM)
        return self.child.wait(STOP_S_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
        self.child.stop()
