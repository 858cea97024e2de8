"""Real proxies that terminate TLS in front: pages of the service's own origin, and of others."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.socket import Talk
from tests.apps.pubsub.test_whole import ANN, UNLIMITED, access_of
from tests.doors.test_tls import Authority
from tests.engines.child import PATIENCE_S, Child, free_port, until
from tests.engines.need import Program, engine

pytestmark = pytest.mark.engine

NGINX = """\
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {cert};
    ssl_certificate_key {key};
    location / {{
      proxy_pass http://127.0.0.1:{service};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
    }}
  }}
}}
"""
CADDY = """\
{{
  admin off
  auto_https off
  storage file_system {folder}/caddy
}}
https://127.0.0.1:{port} {{
  bind 127.0.0.1
  tls {cert} {key}
  reverse_proxy 127.0.0.1:{service}
}}
"""


class Edge(NamedTuple):
    """A service behind a proxy, and how to reach it."""

    service: PubSubProcess
    origin: str
    context: ssl.SSLContext

    def open(self, origin: str, **headers: str) -> ClientConnection:
        """A WebSocket as a page of that origin opens it, with a token."""
        return connect(
            self.origin.replace("https", "wss") + "/v1/socket",
            ssl=self.context,
            origin=Origin(origin),
            additional_headers={"Authorization": f"Bearer {ANN}", **headers},
            open_timeout=PATIENCE_S,
        )


@contextmanager
def started(folder: Path, proxy: str, *flags: str) -> Iterator[Edge]:
    program = shutil.which(proxy) or f"/usr/sbin/{proxy}"
    engine(proxy, [Program(program, f"apt-get install -y {proxy}")])
    authority, port = Authority(folder), free_port("127.0.0.1")
    access = ("--access", access_of(folder), "--hosts", f"127.0.0.1:{port}")
    with ExitStack() as stack:
        service = stack.enter_context(PubSubProcess(folder, *access, *UNLIMITED, *flags))
        file = folder / f"{proxy}.conf"
        text = {"nginx": NGINX, "caddy": CADDY}[proxy]
        file.write_text(
            text.format(
                folder=folder,
                port=port,
                service=service.port,
                cert=authority.cert,
                key=authority.key,
            )
        )
        words = {
            "nginx": [program, "-e", "stderr", "-p", str(folder), "-c", str(file)],
            "caddy": [program, "run", "--adapter", "caddyfile", "--config", str(file)],
        }[proxy]
        child = Child(proxy, words, folder / f"{proxy}.log")
        stack.callback(child.stop)
        edge = Edge(service, f"https://127.0.0.1:{port}", authority.client())

        until(lambda: _answers(port), proxy, children=[child])
        yield edge


def _answers(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), 1.0).close()
    return True


@pytest.mark.parametrize("proxy", ["nginx", "caddy"])
def test_own_page_behind_tls_proxy_may_open_socket(tmp_path: Path, proxy: str) -> None:
    trusting = ("--trusted-proxies", "127.0.0.0/8", "--connections-per-address-max", "1")
    with started(tmp_path, proxy, *trusting) as edge:
        with edge.open(edge.origin) as one, edge.open(edge.origin) as two:
            for each in (one, two):  # connections of a proxy are those of many clients
                assert Talk(each).ask("members", channel="c")["type"] == "members"
        for origin in ("https://other.example.com", edge.origin.replace("https", "http")):
            with pytest.raises(InvalidStatus, match="403"), edge.open(origin):
                pass
        # Forged headers are ignored or rejected.
        evil = "http://127.0.0.1:9"
        with (
            pytest.raises(InvalidStatus, match=r"40[03]"),
            edge.open(evil, Forwarded="proto=http;host=127.0.0.1:9"),
        ):
            pass
        with (
            pytest.raises(InvalidStatus, match="403"),
            edge.open(evil, **{"X-Forwarded-Proto": "http"}),
        ):
            pass


def test_proxy_that_is_not_trusted_tells_nothing(tmp_path: Path) -> None:
    flags = ("--trusted-proxies", "10.0.0.0/8")
    with started(tmp_path, "nginx", *flags) as edge:
        with pytest.raises(InvalidStatus, match="403"), edge.open(edge.origin):
            pass
        with edge.open(edge.origin.replace("https", "http")) as plain:
            assert Talk(plain).ask("members", channel="c")["type"] == "members"
