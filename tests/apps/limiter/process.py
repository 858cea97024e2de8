"""A `headgate limiter` as a user starts it: a process of its own, real sockets, a ready line."""

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

from tests.engines.child import Child, free_port, until

START_S_MAX = 30.0
STOP_S_MAX = 15.0


class LimiterProcess:
    """One limiter; `port` is where all its languages are spoken."""

    def __init__(self, folder: Path, *flags: str, port: int = 0, wait: bool = True) -> None:
        self.port = port or free_port("127.0.0.1")
        self.log = folder / f"limiter-{self.port}.log"
        self.url = f"http://127.0.0.1:{self.port}"
        listen = [] if "--listen" in flags else ["--listen", f"127.0.0.1:{self.port}"]
        command = [sys.executable, "-m", "headgate.cli", "limiter", *listen, *flags]
        self.child = Child("headgate limiter", command, self.log)
        if wait:
            until(lambda: self.ready_line, "headgate limiter", START_S_MAX, [self.child])

    @property
    def ready_line(self) -> str:
        """What it printed when it was ready; empty before that."""
        found = re.search(r"^headgate limiter is ready.*$", self.log.read_text(), re.MULTILINE)
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
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        else:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=5, context=context
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

    def check(self, user: str, path: str = "/", **more: object) -> Any:
        """One native check over HTTP."""
        status, said = self.ask("/v1/check", {"user_id": user, "resource_path": path, **more})
        assert status == 200, said
        return said

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        _, page = self.ask("/metrics")
        total = 0.0
        for line in page.splitlines():
            if line.startswith("#"):
                continue
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(
                f'{key}="{wanted}"' in series for key, wanted in labels.items()
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


def rules_file(folder: Path, text: str, name: str = "rules.yaml") -> str:
    """A rules file in this folder, replaced whole as an editor would."""
    file = folder / name
    beside = folder / f".{name}.new"
    beside.write_text(text)
    beside.replace(file)
    return str(file)


NATIVE = """\
version: 1
rules:
  - rule_id: playback
    resource_path: /api/v1/playback
    limit: 5
    window_seconds: 60
    burst_capacity: 1.2
  - rule_id: bulk
    resource_path: /bulk/*
    priority_bucket: BULK
    limit: 1000
    window_seconds: 60
"""
ENVOY = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""
