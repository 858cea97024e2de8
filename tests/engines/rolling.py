"""Two replicas of a service behind a real HAProxy or Envoy, updated one at a time under load."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.apps.server_process import ServerProcess
from tests.engines.child import Child, free_port, until
from tests.engines.envoy import EnvoyAdmin, envoy_binary

LEAVE_S = 1.0  # several health checks
CHECK_MS = 200
CLIENTS = 3
PACE_S = 0.01
HOST = "edge.example"
SHOWN = 5

Start = Callable[[Path, int], ServerProcess]  # a replica with its files here, on this port
Call = Callable[[], object]
Connect = Callable[[ExitStack, int], Call]  # a client of this port, closed with the stack


class Proxy(Protocol):
    """A load balancer; `port` is its front."""

    port: int
    child: Child

    def healthy(self) -> int:
        """How many replicas get requests."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class HaproxyPair:
    """HAProxy; `mode` is http, grpc or tcp, and health is checked over HTTP in each."""

    def __init__(self, folder: Path, ports: Sequence[int], mode: str) -> None:
        self.port = free_port("127.0.0.1")
        self._admin = folder / "admin.sock"
        h2, checked = (" proto h2", " proto h2 check-proto h1") if mode == "grpc" else ("", "")
        lines = [
            "global",
            f"    stats socket {self._admin}",
            "defaults",
            f"    mode {'tcp' if mode == 'tcp' else 'http'}",
            "    timeout connect 10s",
            "    timeout client 60s",
            "    timeout server 60s",
            "    option httpchk GET /readyz",
            "frontend edge",
            f"    bind 127.0.0.1:{self.port}{h2}",
            "    default_backend replicas",
            "backend replicas",
            *(
                f"    server r{port} 127.0.0.1:{port}{checked} "
                f"check inter {CHECK_MS}ms fall 2 rise 1"
                for port in ports
            ),
            "",
        ]
        file = folder / "haproxy.cfg"
        file.write_text("\n".join(lines))
        self.child = Child("haproxy", ["haproxy", "-db", "-f", str(file)], folder / "haproxy.log")

    def healthy(self) -> int:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self._admin))
            link.sendall(b"show stat\n")
            page = b"".join(iter(lambda: link.recv(1 << 16), b"")).decode()
        rows = [line.split(",") for line in page.splitlines() if line.startswith("replicas,r")]
        return sum("UP" in row[17] for row in rows)

    def close(self) -> None:
        self.child.stop()


class EnvoyPair:
    """Envoy; `mode` is http, grpc or tcp."""

    def __init__(self, folder: Path, ports: Sequence[int], mode: str) -> None:
        self.port, admin = free_port("127.0.0.1"), free_port("127.0.0.1")
        self._admin = EnvoyAdmin(admin)
        file = folder / "envoy.json"
        file.write_text(json.dumps(_envoy(self.port, admin, ports, mode)))
        words = [str(envoy_binary()), "-c", str(file), "--concurrency", "1"]
        words += ["--disable-hot-restart", "--log-level", "warning"]
        self.child = Child("envoy", words, folder / "envoy.log")

    def healthy(self) -> int:
        return self._admin.ask("/clusters").count("::health_flags::healthy")

    def close(self) -> None:
        self.child.stop()


def _envoy(port: int, admin: int, ports: Sequence[int], mode: str) -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions."
    if mode == "tcp":
        name = "envoy.filters.network.tcp_proxy"
        of = kind + "filters.network.tcp_proxy.v3.TcpProxy"
        settings: dict[str, Any] = {"@type": of, "stat_prefix": "edge", "cluster": "replicas"}
    else:
        name = "envoy.filters.network.http_connection_manager"
        of = kind + "filters.network.http_connection_manager.v3.HttpConnectionManager"
        router = kind + "filters.http.router.v3.Router"
        route = {"match": {"prefix": "/"}, "route": {"cluster": "replicas"}}
        settings = {
            "@type": of,
            "stat_prefix": "edge",
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]
            },
            "http_filters": [
                {"name": "envoy.filters.http.router", "typed_config": {"@type": router}}
            ],
        }
    check = {"grpc_health_check": {}} if mode == "grpc" else {
        "http_health_check": {"path": "/readyz", "host": "127.0.0.1"}
    }  # fmt: skip
    every = f"{CHECK_MS / 1_000}s"
    cluster: dict[str, Any] = {
        "name": "replicas",
        "connect_timeout": "10s",
        "common_lb_config": {
            "healthy_panic_threshold": {"value": 0},
            "update_merge_window": "0s",  # its 1 s would delay news of health by as much
        },
        "health_checks": [
            {
                "timeout": "5s",
                "interval": every,
                "no_traffic_interval": every,
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                **check,
            }
        ],
        "load_assignment": {
            "cluster_name": "replicas",
            "endpoints": [{"lb_endpoints": [{"endpoint": _address(one)} for one in ports]}],
        },
    }
    if mode == "grpc":
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": kind + "upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    chain = {"filters": [{"name": name, "typed_config": settings}]}
    return {
        "admin": _address(admin),
        "static_resources": {
            "listeners": [{**_address(port), "filter_chains": [chain]}],
            "clusters": [cluster],
        },
    }


def _address(port: int) -> dict[str, Any]:
    return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}


class Fleet:
    """Two replicas, what is in front of them, and clients that call until the block ends."""

    def __init__(
        self,
        folder: Path,
        start: Start,
        connect: Connect,
        proxy: Callable[[Path, Sequence[int], str], Proxy],
        mode: str,
    ) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._folder = folder
        self._phase("start")
        self._start = start
        self._connect = connect
        self._stack = ExitStack()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        ports = [free_port("127.0.0.1") for _ in range(2)]
        try:
            self._replicas = [self._started(port) for port in ports]
            self._proxy = proxy(folder, ports, mode)
            self._stack.callback(self._proxy.close)
            self._until_healthy()
        except BaseException:
            self._stack.close()
            raise
        self._threads = [threading.Thread(target=self._call) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def update(self) -> None:
        """Restart each replica, the next one when the last one gets requests again."""
        for number, old in enumerate(self._replicas):
            self._phase("leaving")
            code = old.end()
            self._phase("ended")
            assert code == 0, old.child.tail()
            self._replicas[number] = self._started(old.port)
            self._phase("ready")
            self._until_healthy()
            self._phase("healthy")
            self._until_called()

    def _phase(self, name: str) -> None:
        self._now = name, time.monotonic()

    def _started(self, port: int) -> ServerProcess:
        folder = self._folder / str(port)
        folder.mkdir(exist_ok=True)
        replica = self._start(folder, port)
        self._stack.callback(replica.child.stop)
        return replica

    def _until_called(self) -> None:
        before = self.answered + len(self.failures)
        until(lambda: self.answered + len(self.failures) > before + CLIENTS, "the load goes on")

    def _until_healthy(self) -> None:
        children = [self._proxy.child, *(one.child for one in self._replicas)]
        until(lambda: self._proxy.healthy() == len(self._replicas), "healthy", children=children)

    def _call(self) -> None:
        with ExitStack() as stack:
            call = self._connect(stack, self._proxy.port)
            while not self._ending.wait(PACE_S):
                try:
                    call()
                except Exception as error:
                    phase, since_s = self._now
                    at = f"{time.monotonic() - since_s:.2f} s after {phase}: "
                    with self._lock:
                        self.failures.append(f"{at}{type(error).__name__}: {error}"[:300])
                else:
                    with self._lock:
                        self.answered += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._stack.close()
