"""`sluicegate resilience serve` on real processes and sockets: a Flask shop with few threads."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluicegate.cli import main
from tests.apps.resilience.serve.service import (
    CHECKOUT,
    PATIENCE_S,
    ROOT,
    SHOP,
    Served,
    begun,
    serving,
    until,
)

PIECE = 65_536
GROWTH_KIB_MAX = 32 * 1024  # of the front, whatever passes through it


@pytest.fixture(scope="module")
def idle_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One service for the tests that leave it as it was."""
    with serving(tmp_path_factory.mktemp("shop"), "--workers", "1", "--threads", "2") as shop:
        yield shop


def peak_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in text.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


def test_first_line_names_limit_and_its_origin(idle_shop: Served) -> None:
    assert "1 workers x 2 threads" in idle_shop.first
    assert "limit 2 (workers x threads)" in idle_shop.first


def test_health_with_all_threads_busy_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path, "--threads", "1") as shop, ThreadPoolExecutor(4) as pool:
        pages = [pool.submit(shop.ask, f"/page/{number}") for number in range(4)]
        until(shop.begun)
        assert shop.ask("/healthz").body == b"ok"
        assert len(shop.begun()) == 1  # the limit holds while health passes
        shop.open()
        assert [page.result().status for page in pages] == [200] * 4


def test_health_without_front_waits_for_the_thread(tmp_path: Path) -> None:
    """The control: the same worker with the same number of threads, and no queue in front."""
    path = tmp_path / "socket"
    worker = [sys.executable, "-m", "sluicegate.apps.resilience.serve.worker", str(path), SHOP, "1"]
    environment = {**os.environ, "SHOP_FOLDER": str(tmp_path)}
    with subprocess.Popen(worker, stdin=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        assert process.stdin is not None
        until(path.exists)
        page, health = (socket.socket(socket.AF_UNIX) for _ in range(2))
        with page, health:
            for one, target in ((page, b"/page/1"), (health, b"/healthz")):
                one.settimeout(PATIENCE_S)
                one.connect(str(path))
                one.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                until(lambda: begun(tmp_path))
            health.settimeout(0.5)
            with pytest.raises(TimeoutError):
                health.recv(1)
            (tmp_path / "open").touch()
            health.settimeout(PATIENCE_S)
            assert health.recv(12) == b"HTTP/1.1 200"
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_critical_is_served_before_earlier_bulk(tmp_path: Path) -> None:
    flags = ["--threads", "1", "--trusted-proxies", "127.0.0.0/8", "--caller-header", "X-User"]
    with serving(tmp_path, *flags, callers=CHECKOUT) as shop, ThreadPoolExecutor(3) as pool:
        pages = []
        for name in ("first", "bulk", "critical"):
            headers = {"X_User": "checkout", "X_Sluicegate_Criticality": name.replace("first", "")}
            pages.append(pool.submit(shop.ask, f"/page/{name}", **headers))
            until(shop.begun)
            until(lambda: established(shop.port) == len(pages))
            shop.ask("/healthz")  # the page has been read, as it was sent before
        shop.open()
        assert [page.result().status for page in pages] == [200] * 3
        assert shop.begun() == ["first", "critical", "bulk"]


def test_client_that_leaves_queue_is_not_served(tmp_path: Path) -> None:
    with serving(tmp_path, "--threads", "1") as shop, ThreadPoolExecutor(1) as pool:
        first = pool.submit(shop.ask, "/page/first")
        until(shop.begun)
        with socket.create_connection(("127.0.0.1", shop.port)) as left:
            left.sendall(b"GET /page/left HTTP/1.1\r\nHost: shop\r\n\r\n")
            shop.ask("/healthz")
        until(lambda: established(shop.port) == 1)
        shop.open()
        assert first.result().status == 200
        assert shop.ask("/page/last").status == 200
        assert shop.begun() == ["first", "last"]


def established(port: int) -> int:
    """Return how many connections of clients the server has."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def test_forwarded_headers_of_client_are_replaced(idle_shop: Served) -> None:
    answer = idle_shop.ask(
        "/environ?a=%2F", X_Forwarded_For="9.9.9.9", X_Forwarded_Proto="https",
        X_Forwarded_Host="evil", Forwarded="for=9.9.9.9", X_Real_Ip="9.9.9.9", Connection="x-drop",
        X_Drop="1", X_Kept="1",
    )  # fmt: skip
    environ = json.loads(answer.body)
    assert environ["REMOTE_ADDR"] == "127.0.0.1"
    assert environ["wsgi.url_scheme"] == "http"
    assert environ["HTTP_HOST"] == f"127.0.0.1:{idle_shop.port}"
    assert environ["QUERY_STRING"] == "a=%2F"
    assert environ["HTTP_X_KEPT"] == "1"
    for name in ("HTTP_FORWARDED", "HTTP_X_REAL_IP", "HTTP_X_DROP"):
        assert name not in environ
    assert "evil" not in str(environ)
    assert "9.9.9.9" not in str(environ)


def test_header_with_underscores_is_dropped(idle_shop: Served) -> None:
    """WSGI would read it as the one with hyphens."""
    connection = http.client.HTTPConnection("127.0.0.1", idle_shop.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/environ", headers={"X_Forwarded_For": "9.9.9.9"})
        environ = json.loads(connection.getresponse().read())
    assert environ["REMOTE_ADDR"] == environ["HTTP_X_FORWARDED_FOR"] == "127.0.0.1"


def test_deadline_and_class_reach_application(idle_shop: Served) -> None:
    headers = {"X_Sluicegate_Deadline_Ms": "60000", "X_Sluicegate_Criticality": "bulk"}
    context = json.loads(idle_shop.ask("/context", **headers).body)
    assert 0 < context["left_us"] <= 60_000_000
    assert context["criticality"] == "BULK"


def test_unreadable_deadline_is_rejected(idle_shop: Served) -> None:
    answer = idle_shop.ask("/context", X_Sluicegate_Deadline_Ms="soon")
    assert answer.status == 400
    assert b"x-sluicegate-deadline-ms" in answer.body


def test_trusted_proxy_names_client_and_caller(tmp_path: Path) -> None:
    flags = ["--trusted-proxies", "127.0.0.0/8", "--caller-header", "X-User"]
    claim = {"X_Sluicegate_Criticality": "critical"}
    with serving(tmp_path, *flags, callers=CHECKOUT) as shop:
        told = {"X_Forwarded_For": "203.0.113.7", "X_Forwarded_Proto": "https"}
        environ = json.loads(shop.ask("/environ", X_Forwarded_Host="shop.example", **told).body)
        assert environ["REMOTE_ADDR"] == "203.0.113.7"
        assert environ["wsgi.url_scheme"] == "https"
        assert environ["HTTP_HOST"] == "shop.example"
        named = json.loads(shop.ask("/context", X_User="checkout", **claim).body)
        other = json.loads(shop.ask("/context", X_User="somebody", **claim).body)
        assert (named["criticality"], other["criticality"]) == ("CRITICAL", "DEGRADED")


def test_caller_header_of_client_is_dropped(tmp_path: Path) -> None:
    flags = ["--trusted-proxies", "192.0.2.0/24", "--caller-header", "X-User"]
    with serving(tmp_path, *flags) as shop:
        assert "HTTP_X_USER" not in json.loads(shop.ask("/environ", X_User="checkout").body)


@pytest.mark.parametrize("coding", ["length", "chunked"])
def test_upload_of_64_mib_passes_in_bounded_memory(idle_shop: Served, coding: str) -> None:
    pieces = 1_024
    before = peak_kib(idle_shop.process.pid)
    connection = http.client.HTTPConnection("127.0.0.1", idle_shop.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        headers = {"Content-Length": str(pieces * PIECE)} if coding == "length" else {}
        body = (bytes(PIECE) for _ in range(pieces))
        connection.request("POST", "/size", body, headers, encode_chunked=coding == "chunked")
        assert connection.getresponse().read() == b"%d" % (pieces * PIECE)
    assert peak_kib(idle_shop.process.pid) - before < GROWTH_KIB_MAX


def test_download_of_64_mib_passes_in_bounded_memory(idle_shop: Served) -> None:
    before = peak_kib(idle_shop.process.pid)
    connection = http.client.HTTPConnection("127.0.0.1", idle_shop.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/pieces/1024")
        answer = connection.getresponse()
        until(lambda: "pieces" in idle_shop.begun())
        assert (
            idle_shop.ask("/healthz").status == 200
        )  # the response has begun, and is not read yet
        assert sum(map(len, iter(lambda: answer.read(PIECE), b""))) == 1_024 * PIECE
    assert peak_kib(idle_shop.process.pid) - before < GROWTH_KIB_MAX


def test_disconnect_ends_an_endless_response(idle_shop: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", idle_shop.port, timeout=PATIENCE_S)
    connection.request("GET", "/endless")
    assert connection.getresponse().read(10) == b"more\nmore\n"
    connection.sock.close()
    connection.close()
    until(lambda: "closed" in idle_shop.begun())


def test_head_and_keep_alive(idle_shop: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", idle_shop.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        for method in ("HEAD", "GET", "HEAD", "GET"):
            connection.request(method, "/healthz")
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("content-length")) == (200, "2")
            assert answer.read() == (b"ok" if method == "GET" else b"")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_worker_that_dies_gives_502_once(tmp_path: Path, method: str) -> None:
    with serving(tmp_path, "--workers", "1", "--threads", "2") as shop:
        before = shop.ask("/pid").body
        answer = shop.ask("/die", method)
        assert answer.status == 502
        assert answer.headers["content-type"] == "application/problem+json"
        assert shop.ask("/pid").body != before  # waits for the next worker
        assert shop.begun() == ["die"]  # was not repeated


def test_worker_that_dies_in_response_cuts_it(tmp_path: Path) -> None:
    with serving(tmp_path) as shop:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            shop.ask("/half")
        assert shop.ask("/healthz").status == 200


def test_sigterm_finishes_requests_in_flight_and_queued(tmp_path: Path) -> None:
    with serving(tmp_path, "--threads", "1") as shop, ThreadPoolExecutor(2) as pool:
        pages = [pool.submit(shop.ask, f"/page/{number}") for number in range(2)]
        until(shop.begun)
        shop.ask("/healthz")  # both have arrived
        shop.process.send_signal(signal.SIGTERM)
        until(lambda: is_refused(shop.port))
        shop.open()
        assert [page.result().status for page in pages] == [200, 200]
        assert shop.process.wait(PATIENCE_S) == 0


def test_sigterm_leaves_ready_line_first_and_serves(tmp_path: Path) -> None:
    with serving(tmp_path, "--leave-s", "60") as shop:
        kept = http.client.HTTPConnection("127.0.0.1", shop.port, timeout=PATIENCE_S)
        with contextlib.closing(kept):
            kept.request("GET", "/healthz")
            kept.getresponse().read()
            assert shop.ask("/readyz").status == 200
            shop.process.send_signal(signal.SIGTERM)
            until(lambda: shop.ask("/readyz").status == 503)
            kept.request("GET", "/healthz")
            answer = kept.getresponse()
            assert (answer.status, answer.getheader("connection")) == (200, "close")
            assert shop.ask("/healthz").headers["connection"] == "close"
        shop.process.send_signal(signal.SIGTERM)  # skips the wait
        assert shop.process.wait(PATIENCE_S) == 0


def test_sigterm_ends_after_leave_time(tmp_path: Path) -> None:
    with serving(tmp_path, "--leave-s", "0.2") as shop:
        shop.process.send_signal(signal.SIGTERM)
        assert shop.process.wait(PATIENCE_S) == 0


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_killed_front_takes_its_workers_with_it(tmp_path: Path) -> None:
    with serving(tmp_path) as shop:
        pid = int(shop.ask("/pid").body)
        shop.process.kill()
        until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shop"], "APP: 'shop' cannot be used; write MODULE:NAME"),
        ([SHOP, "--workers", "0"], "--workers: 0 cannot be used"),
        ([SHOP, "--threads", "0"], "--threads: 0 cannot be used"),
        ([SHOP, "--drain-s", "-1"], "--drain-s: -1.0 cannot be used"),
        ([SHOP, "--leave-s", "-1"], "--leave-s: -1.0 cannot be used"),
        ([SHOP, "--listen", "8000"], "--listen: '8000' cannot be used; write HOST:PORT"),
        ([SHOP, "--trusted-proxies", "x"], "--trusted-proxies: 'x' cannot be used; write networks"),
        ([SHOP, "--caller-header", "X-User"], "add --trusted-proxies"),
    ],
)
def test_wrong_flag_is_named_with_its_fix(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resilience", "serve", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("no_such_module:app", "no module 'no_such_module' in "),
        ("json:app", "json has no 'app'; name the WSGI callable"),
        ("json:__name__", "__name__ is of type str; name the WSGI callable"),
    ],
)
def test_application_that_cannot_be_loaded_is_named(
    app: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["resilience", "serve", app, "--listen", "127.0.0.1:0"]) == 1
    printed = capfd.readouterr().err
    assert message in printed
    assert "worker 0 is unavailable: it ended with exit code 2 before it was ready" in printed
