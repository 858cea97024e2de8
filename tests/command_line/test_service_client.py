from __future__ import annotations

import json
import socket
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from sluicegate.command_line.service_client import (
    TOKEN_VARIABLE,
    ServiceAddress,
    ServiceClient,
    add_address_flags,
    address_from,
    ask,
)
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable

EXAMPLE = "http://127.0.0.1:7080"


class ReceivedRequest(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@contextmanager
def service(
    status: int = 200, content: Any = None, **more: str
) -> Iterator[tuple[str, list[ReceivedRequest]]]:
    """A service that answers everything alike, and what it has heard."""
    requests: list[ReceivedRequest] = []
    body = content if isinstance(content, bytes) else json.dumps(content).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append(ReceivedRequest(self.command, self.path, dict(self.headers), sent))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in more.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815 - as the server calls them

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


def get(where: ServiceAddress, path: str = "/v1/state", **more: Any) -> Any:
    return ask(where, "the thing", path, timeout_s=5.0, **more)


def parse_flags(*flags: str) -> Namespace:
    parser = ArgumentParser()
    add_address_flags(parser, EXAMPLE, "with the grant audit", "--at", "--url")
    return parser.parse_args(flags)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "here",
        "ftp://here",
        "http://",
        "http://:80",
        "http://here:0",
        "http://here:no",
        "http://here:65536",
        "http://[::1",
    ],
)
def test_what_is_no_url_of_a_service_is_told_with_one_that_is(url: str) -> None:
    with pytest.raises(BadValue, match=f"^--at: .*write it as {EXAMPLE}"):
        address_from(url, parse_flags(), flag="--at", example=EXAMPLE)


def test_the_token_is_the_flags_and_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "kept")
    flags = ("--at", "http://here", "--ca", "ca.pem")
    address = address_from("http://here", parse_flags(*flags), flag="--at", example=EXAMPLE)
    assert address == ServiceAddress("http://here", "kept", "ca.pem")
    address = address_from(
        "http://here", parse_flags("--token", "given"), flag="--at", example=EXAMPLE
    )
    assert address.token == "given"


def test_a_token_that_no_header_can_hold_is_refused_and_not_shown() -> None:
    with pytest.raises(BadValue, match="ASCII") as refused:
        address_from(
            EXAMPLE, parse_flags("--token", "geheim\N{SNOWMAN}"), flag="--at", example=EXAMPLE
        )
    assert "geheim" not in str(refused.value)


def test_a_service_is_asked_as_whom_the_token_says_below_the_path_of_its_url() -> None:
    with service(content={"a": 1}) as (url, requests):
        assert get(ServiceAddress(f"{url}/kv/", "secret")) == {"a": 1}
        assert get(ServiceAddress(url), "/v1/backup", method="POST", body=b"{}") == {"a": 1}
    assert (requests[0].method, requests[0].path) == ("GET", "/kv/v1/state")
    assert requests[0].headers["Authorization"] == "Bearer secret"
    assert (requests[1].method, requests[1].path, requests[1].body) == ("POST", "/v1/backup", b"{}")
    assert requests[1].headers["Content-Type"] == "application/json"
    assert "Authorization" not in requests[1].headers


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        ({"title": "Conflict", "detail": "it is there"}, "it is there"),
        ({"title": "Already there"}, "Already there"),
        (["no object"], "Conflict"),
        (b"<html>", "Conflict"),
    ],
)
def test_what_is_refused_is_told_in_the_services_own_words(content: Any, pattern: str) -> None:
    with (
        service(409, content) as (url, _),
        pytest.raises(SluicegateError, match=rf"^the thing answers 409: {pattern}$"),
    ):
        get(ServiceAddress(url))


@pytest.mark.parametrize("status", [401, 403])
def test_who_may_not_ask_is_told_which_grant_it_takes(status: int) -> None:
    with service(status, {"detail": "no"}) as (url, _):
        with pytest.raises(SluicegateError, match=f"{status}: .*the grant audit.*{TOKEN_VARIABLE}"):
            get(ServiceAddress(url), grant="audit")
        with pytest.raises(SluicegateError, match=f"answers {status}: no"):
            get(ServiceAddress(url))


@pytest.mark.parametrize("content", [b"hello", b"", b"[" * 100_000])
def test_an_answer_that_is_no_json_is_none(content: bytes) -> None:
    with service(200, content) as (url, _), pytest.raises(SluicegateError, match="answers 200: OK"):
        get(ServiceAddress(url))


def test_a_line_hands_on_whatever_is_answered_and_when_to_come_again() -> None:
    with (
        service(503, {"detail": "full"}, Retry_After="7") as (url, requests),
        closing(ServiceClient(ServiceAddress(url), "the thing", timeout_s=5.0)) as line,
    ):
        answers = [line.call("GET", "/", None, {"X-One": "1"}) for _ in range(2)]
    assert [(one.status, one.error, one.retry_after) for one in answers] == [(503, "full", "7")] * 2
    assert not answers[0].ok
    assert requests[1].headers["X-One"] == "1"


def test_nobody_there_is_unavailable_under_its_name() -> None:
    with pytest.raises(Unavailable, match=r"^the thing is unavailable: Connection refused"):
        get(ServiceAddress("http://127.0.0.1:1"))
    with pytest.raises(Unavailable, match="the thing"):
        get(ServiceAddress("http://a..b"))  # a name that cannot even be looked up


@pytest.mark.parametrize("broken", [b"", b"no HTTP at all\r\n"])
def test_a_line_that_broke_is_opened_again(broken: bytes) -> None:
    def serve(listening: socket.socket) -> None:
        for answer in (broken, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with closing(ServiceClient(ServiceAddress(url), "the thing", timeout_s=5.0)) as line:
            with pytest.raises(Unavailable):
                line.call("GET", "/", None, {})
            assert line.call("GET", "/", None, {}).body == {}
        thread.join()


def test_authorities_that_cannot_be_read_are_told_before_anything_is_asked() -> None:
    with pytest.raises(BadValue, match=r"^--ca: .*cannot be read"):
        ServiceClient(
            ServiceAddress("https://127.0.0.1:1", ca="/nowhere.pem"), "the thing", timeout_s=5.0
        )
