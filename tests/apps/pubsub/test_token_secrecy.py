"""No token is written anywhere: log, traces, metrics, state and error texts of a real process."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from sluicegate.client.pubsub import PubSubClient
from tests.apps.collector import SAMPLED, Collector
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.socket import talk, url_of
from tests.apps.pubsub.test_whole import ANN
from tests.apps.pubsub.tokens import signed, token_server
from tests.engines.child import PATIENCE_S

SHAPES = (
    "/v1/channels/c/events?access_token={}",
    "/v1/channels/c/events?access_token={0}&access_token={0}",
    "/v1/channels/c/events?access%5Ftoken={}",
    "/v1/channels/c/events?after=x&access_token={}",
    "/v1/channels/c/messages?access_token={}",
    "/v1/channels/c/messages?%ff=%ff&access_token={}",
    "/v1/socket?access_token={}",
    "/healthz?access_token={}",
    "/metrics?access_token={}",
    "/v1/state?access_token={}",
    "/nowhere?access_token={}",
    "/?access_token={}",
    "/v1/channels/c/events?x=" + "y" * 9_000 + "&access_token={}",
    "/v1/channels/c/events?access_token={}#",
)

PART_BYTES = 12


def answers(server: PubSubProcess, target: str, *lines: str) -> bytes:
    """All that comes back within a second, or until the end."""
    head = [f"GET {target} HTTP/1.1", "Host: localhost", f"traceparent: {SAMPLED}", *lines, "", ""]
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
        connection.sendall("\r\n".join(head).encode())
        found = connection.recv(1 << 16)
        connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(1 << 16):
            found += more
    return found


def test_no_token_is_written_anywhere(tmp_path: Path) -> None:
    tokens = [signed(), signed(for_s=-1), signed(key="x" * 43), signed({"a*b": []}), "o" * 43]
    shown = b""
    with Collector() as collector:
        flags = ("--log", "debug", "--traces", collector.url, "--traces-share", "1")
        with token_server(tmp_path, *flags) as server:
            for token in tokens:
                for shape in SHAPES:
                    shown += answers(server, shape.format(token))
                shown += answers(server, "/v1/socket", f"Sec-WebSocket-Protocol: bearer.{token}")
                shown += answers(server, "/v1/usage", f"Authorization: Bearer {token}")
                shown += answers(server, "/v1/usage", f"Authorization: {token}")
                with (
                    suppress(InvalidStatus),
                    connect(f"{url_of(server)}?access_token={token}") as one,
                ):
                    one.ping()
                with talk(server, ANN) as ann:
                    for fields in ({"token": token}, {"token": [token]}, {"tokens": token}):
                        shown += json.dumps(ann.ask("auth", **fields)).encode()
                    for message in (
                        {"type": "auth", "token": token},
                        {"token": token, "type": "auth"},
                    ):
                        ann.connection.send(json.dumps(message))
                    ann.ask("auth", tokens=[])  # both are read before it
                    shown += json.dumps(ann.kept).encode()
            for path in ("/metrics", "/v1/state", "/openapi.json"):
                shown += json.dumps(server.ask(path, token=ANN)).encode()
        shown += server.log.read_bytes() + repr(collector.spans).encode()
        assert collector.spans
    # Error texts and debug lines are cut: no part of a token may be in them.
    parts = {
        one[at : at + PART_BYTES].encode()
        for token in tokens
        for one in token.split(".")[-2:]
        for at in range(len(one) - PART_BYTES + 1)
    }
    found = [shown[max(0, at - 200) : at + 80] for one in parts if (at := shown.find(one)) >= 0]
    assert found == []


def test_client_writes_no_token_at_debug_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def publish(url: str) -> None:
        client = PubSubClient(url, token=ANN)
        await client.publish("c", "secret data")
        await client.close()

    caplog.set_level(logging.DEBUG)
    with token_server(tmp_path) as server:
        asyncio.run(publish(url_of(server)))
    assert ANN not in caplog.text
    assert "secret data" not in caplog.text
