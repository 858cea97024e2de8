"""The tests' own server: what a peer does to its connection reaches no other."""

from __future__ import annotations

import socket
import struct

import httpx

from tests.resilience.client.server import OK, serving

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, and no time


def test_a_reset_and_a_silent_peer_keep_nobody_from_an_answer() -> None:
    with serving(OK) as server, socket.create_connection(("127.0.0.1", server.port)) as silent:
        for request in (b"", b"GET / HT", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                peer.sendall(request)
        assert httpx.get(server.url, timeout=10).text == "ok"
        assert silent.getpeername()[1] == server.port
