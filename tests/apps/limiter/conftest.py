"""Gives these tests what Envoy protects."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest


class Service(NamedTuple):
    """What Envoy protects: it answers with the headers that reached it."""

    port: int


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a head and its body in one write: in two, the second waits 40 ms for an ACK

    def do_GET(self) -> None:
        body = json.dumps({key.lower(): value for key, value in self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections of a burst that wait to be accepted


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    server = Server(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Service(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join()
