"""Open streams and requests end with the access of their caller: each service as a process."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from sluicegate.policies.access import token_digest
from tests.apps.console.process import ConsoleProcess
from tests.apps.images.process import ImagesProcess
from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.server_process import ServerProcess
from tests.engines.child import PATIENCE_S

ANN, BOB = "a" * 43, "b" * 43
EVERY = ("audit", "check", "fetch", "publish", "subscribe", "upload")
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
LIST = b"\x3a\x00"  # list_services


def caller(name: str, token: str, grants: Sequence[str]) -> str:
    listed = ", ".join(f'"{one}"' for one in grants)
    tables = 'tables = { "*" = ["read", "write", "bulk"] }'
    return (
        f'[[callers]]\nname = "{name}"\ntoken_sha256 = "{token_digest(token)}"\n'
        f"grants = [{listed}]\n{tables}\n"
    )


def revoke(server: ServerProcess, access: Path, *, reduce: bool = False) -> None:
    """Take ann out of the file, or one grant from ann; bob stays."""
    ann = caller("ann", ANN, [one for one in EVERY if one != "audit"]) if reduce else ""
    access.write_text(ann + caller("bob", BOB, EVERY))
    server.signal(signal.SIGHUP)


@pytest.fixture
def access(tmp_path: Path) -> Path:
    file = tmp_path / "callers.toml"
    file.write_text(caller("ann", ANN, EVERY) + caller("bob", BOB, EVERY))
    return file


def services(folder: Path, access: Path) -> dict[str, Any]:
    flags = ("--access", str(access))
    return {
        "kv": lambda: KvProcess(folder, "--engine", "memory:", *flags),
        "limiter": lambda: LimiterProcess(folder, "--rules", rules_file(folder, NATIVE), *flags),
        "images": lambda: ImagesProcess(folder, *flags),
        "pubsub": lambda: PubSubProcess(folder, *flags),
        "console": lambda: ConsoleProcess(folder, "--every-s", "0.2", *flags),
    }


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
UPLOADS = {
    "kv": ("PUT", "/v1/tables/t/rows/1"),
    "limiter": ("POST", "/v1/check"),
    "images": ("POST", "/v1/prefetch"),
    "pubsub": ("POST", "/v1/channels/news/messages"),
}


@pytest.mark.parametrize("app", sorted(UPLOADS))
@pytest.mark.parametrize("reduce", [False, True])
def test_open_request_of_revoked_caller_gets_401(
    tmp_path: Path, access: Path, app: str, reduce: bool
) -> None:
    method, path = UPLOADS[app]
    with services(tmp_path, access)[app]() as server:
        connections = {}
        for token in (ANN, BOB):
            one = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
            one.putrequest(method, path)
            headers = {"Content-Type": "application/json", "Content-Length": "1000"}
            headers |= {"Expect": "100-continue", "Authorization": f"Bearer {token}"}
            for name, value in headers.items():
                one.putheader(name, value)
            one.endheaders()
            assert one.sock.recv(len(CONTINUE), socket.MSG_WAITALL) == CONTINUE  # the head is read
            connections[token] = one
        revoke(server, access, reduce=reduce)
        reply = connections[ANN].getresponse()
        assert reply.status == 401
        assert "revoked" in json.loads(reply.read())["detail"]
        connections[BOB].send(b" " * 1_000)
        assert connections[BOB].getresponse().status in (204, 400)
        for one in connections.values():
            one.close()


@pytest.mark.parametrize("app", ["kv", "limiter"])
def test_grpc_stream_of_revoked_caller_ends_unauthenticated(
    tmp_path: Path, access: Path, app: str
) -> None:
    with (
        services(tmp_path, access)[app]() as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        method: Any = channel.stream_stream(REFLECTION)
        done = threading.Event()

        def requests() -> Iterator[bytes]:
            yield LIST
            done.wait(PATIENCE_S)
            yield LIST

        streams = [
            method(requests(), timeout=PATIENCE_S, metadata=[("authorization", f"Bearer {token}")])
            for token in (ANN, BOB)
        ]
        for one in streams:
            assert next(one)
        revoke(server, access)
        with pytest.raises(grpc.RpcError) as ended:
            next(streams[0])
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert ended.value.details() == "access was revoked or reduced"
        done.set()
        assert next(streams[1])


@pytest.mark.parametrize("app", ["console", "pubsub"])
def test_event_stream_of_revoked_caller_ends_with_event(
    tmp_path: Path, access: Path, app: str
) -> None:
    path = {"console": "/live/overview", "pubsub": "/v1/channels/news/events"}[app]
    with services(tmp_path, access)[app]() as server:
        replies = {}
        for token in (ANN, BOB):
            one = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
            one.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            replies[token] = one, one.getresponse()
            assert replies[token][1].status == 200
        revoke(server, access)
        rest = replies[ANN][1].read()
        assert rest.endswith(
            b'event: end\ndata: {"code":4403,"reason":"access was revoked or reduced"}\n\n'
        )
        assert replies[BOB][1].readline()
        if app == "pubsub":
            assert server.ask("/v1/channels/news/messages", {"data": 1}, token=BOB)[0] == 200
            while b"message" not in (line := replies[BOB][1].readline()):
                assert line
        for connection, reply in replies.values():
            reply.close()
            connection.close()


def test_live_page_of_console_session_ends_at_logout(tmp_path: Path, access: Path) -> None:
    with services(tmp_path, access)["console"]() as server:
        one = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        one.request("POST", "/login", f"token={ANN}", form)
        reply = one.getresponse()
        reply.read()
        cookie = str(reply.headers["set-cookie"]).partition(";")[0]
        live = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        live.request("GET", "/live/overview", headers={"Cookie": cookie})
        stream = live.getresponse()
        assert stream.status == 200
        one.request("POST", "/logout", headers={"Cookie": cookie})
        one.getresponse().read()
        assert b"event: end\n" in stream.read()
        for connection in (one, live):
            connection.close()
