"""Errors of real drivers on loopback: each is read as the kind of failure that it is."""

from __future__ import annotations

import asyncio
import http.client
import smtplib
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import aiohttp
import asyncpg
import boto3
import dns.resolver
import grpc
import httpx
import kombu
import pika
import pymongo
import pymysql
import pytest
import redis
import redis.asyncio
import requests
import sqlalchemy
import trustme
import urllib3
import valkey
import websockets
import websockets.sync.client
from botocore.config import Config
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience import Client
from sluicegate.resilience.errors.registry import result_of_driver_error
from tests.engines.child import until
from tests.resilience.client.server import GARBAGE, HANGS, LOST, refusing, serving
from tests.resilience.errors.listeners import Closing, TlsServer

HOST = "127.0.0.1"
SHORT = 0.05
# Longer than a name may be, so the resolver fails without sending a query.
NOBODY = ".".join(["a" * 60] * 5)
Fails = Callable[[int], Any]


def error_of(fails: Callable[[], Any]) -> Exception:
    """Return the exception of a call; a coroutine is awaited."""
    try:
        found = fails()
        if isinstance(found, Coroutine):
            asyncio.run(found)
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def result_of(fails: Callable[[], Any]) -> CallResult[object]:
    """Return the result that its error stands for, which keeps the error."""
    error = error_of(fails)
    found = result_of_driver_error(error)
    assert found is not None, repr(error)
    assert found.error is error
    return found


@pytest.fixture(scope="module")
def closed_port() -> Iterator[int]:
    """A port that is bound, so that it stays free, and has no listener."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield taken.getsockname()[1]


async def by_aiohttp(url: str, timeout_s: float = 10, *, raises: bool = False) -> None:
    timeout = aiohttp.ClientTimeout(sock_read=timeout_s)
    async with (
        aiohttp.ClientSession(timeout=timeout, raise_for_status=raises) as session,
        session.get(url),
    ):
        pass


def by_httpx(url: str, timeout_s: float = 10) -> httpx.Response:
    with httpx.Client(trust_env=False, verify=False, timeout=timeout_s) as driver:
        return driver.get(url)


def by_requests(url: str, timeout_s: float = 10) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, timeout=timeout_s)


def by_urllib3(url: str, timeout_s: float = 10) -> None:
    with urllib3.PoolManager() as pool:
        pool.request("GET", url, timeout=timeout_s, retries=False)


def by_urllib(url: str, timeout_s: float = 10) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(url, timeout=timeout_s).close()


def by_http_client(url: str, timeout_s: float = 10) -> None:
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=timeout_s)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    finally:
        connection.close()


HTTP: list[Callable[..., Any]] = [
    by_httpx,
    by_requests,
    by_urllib3,
    by_urllib,
    by_http_client,
    by_aiohttp,
]
each_http_driver = pytest.mark.parametrize("get", HTTP, ids=lambda get: get.__name__[3:])


@each_http_driver
def test_closed_port_of_http_is_unreached(get: Callable[..., Any], closed_port: int) -> None:
    assert result_of(lambda: get(f"http://{HOST}:{closed_port}/")).kind is ResultKind.UNREACHED


@each_http_driver
def test_unknown_name_of_http_is_unreached(get: Callable[..., Any]) -> None:
    assert result_of(lambda: get(f"http://{NOBODY}/")).kind is ResultKind.UNREACHED


@each_http_driver
@pytest.mark.parametrize("answer", [GARBAGE, LOST], ids=["garbage", "lost"])
def test_reply_that_is_no_http_is_failure(get: Callable[..., Any], answer: bytes) -> None:
    with serving(answer) as server:
        assert result_of(lambda: get(server.url)).kind is ResultKind.FAILED


@each_http_driver
def test_reply_that_is_late_is_timed_out(get: Callable[..., Any]) -> None:
    with serving(HANGS) as server:
        assert result_of(lambda: get(server.url, SHORT)).kind is ResultKind.TIMED_OUT


@pytest.mark.parametrize("get", [by_httpx, by_requests, by_urllib3, by_urllib, by_aiohttp])
def test_unknown_certificate_is_not_repeated(get: Callable[..., Any]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with socket.create_server((HOST, 0)) as listener, TlsServer(listener, context):
        url = f"https://localhost:{listener.getsockname()[1]}/"

        def verified() -> Any:
            if get is by_httpx:
                with httpx.Client(trust_env=False) as driver:
                    return driver.get(url)
            return get(url)

        found = result_of(verified)
    assert (found.kind, found.dont_retry) == (ResultKind.UNREACHED, True)


@pytest.mark.parametrize("get", [by_httpx, by_requests, by_urllib3, by_urllib, by_aiohttp])
def test_port_without_tls_is_unreached(get: Callable[..., Any]) -> None:
    with Closing(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n") as server:
        found = result_of(lambda: get(f"https://127.0.0.1:{server.port}/"))
    assert found.kind is ResultKind.UNREACHED


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (refusing("Retry-After: 7"), ResultKind.OVERLOADED),
        (refusing(), ResultKind.FAILED),
        (refusing(status="500 Broken"), ResultKind.FAILED),
        (refusing("Retry-After: 7", status="429 Limited"), ResultKind.LIMITED),
        (refusing(status="404 Nothing"), ResultKind.REJECTED),
    ],
    ids=["503 later", "503", "500", "429", "404"],
)
@pytest.mark.parametrize("driver", ["httpx", "requests", "urllib", "aiohttp"])
def test_status_that_is_raised_is_read_as_response(
    driver: str, status: bytes, kind: ResultKind
) -> None:
    raising: dict[str, Callable[[str], Any]] = {
        "httpx": lambda url: by_httpx(url).raise_for_status(),
        "requests": lambda url: by_requests(url).raise_for_status(),
        "urllib": by_urllib,
        "aiohttp": lambda url: by_aiohttp(url, raises=True),
    }
    with serving(status) as server:
        found = result_of(lambda: raising[driver](server.url))
    assert found.kind is kind
    assert found.retry_after_us == (7_000_000 if b"Retry-After" in status else 0)
    if isinstance(found.error, urllib.error.HTTPError):
        found.error.close()


def test_error_of_socket_is_read_by_its_number() -> None:
    unreached = [113, 101, 112, 100, 99]
    for number in unreached:
        found = result_of_driver_error(OSError(number, "no route"))
        assert found is not None
        assert found.kind is ResultKind.UNREACHED
        assert found.may_have_run, "a connection that was open may end so"
    timed_out = result_of_driver_error(OSError(110, "timed out"))
    assert timed_out is not None
    assert timed_out.kind is ResultKind.TIMED_OUT
    assert result_of_driver_error(OSError(2, "no such file")) is None


def test_unreachable_network_is_unreached() -> None:
    def connect() -> None:
        with socket.socket() as own:
            own.settimeout(5)
            own.connect(("255.255.255.255", 9))

    error = error_of(connect)
    assert isinstance(error, OSError)
    if error.errno == 13:
        pytest.skip("this machine denies broadcasts before it looks for a route")
    assert result_of(connect).kind is ResultKind.UNREACHED


def test_all_addresses_of_name_refuse_is_unreached(closed_port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        both = [(HOST, closed_port), other.getsockname()]

        async def connect() -> None:
            loop = asyncio.get_running_loop()
            original = loop.getaddrinfo

            async def two(*_: Any, **__: Any) -> list[Any]:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one) for one in both]

            loop.getaddrinfo = two  # type: ignore[method-assign]
            try:
                await asyncio.open_connection("two.invalid", 1)
            finally:
                loop.getaddrinfo = original  # type: ignore[method-assign]

        assert result_of(connect).kind is ResultKind.UNREACHED


def by_redis(port: int) -> None:
    with redis.Redis(HOST, port) as driver:
        driver.get("a")


async def by_redis_async(port: int) -> None:
    async with redis.asyncio.Redis(host=HOST, port=port) as driver:
        await driver.get("a")


def by_valkey(port: int) -> None:
    with valkey.Valkey(HOST, port) as driver:
        driver.get("a")


def by_grpc(port: int) -> None:
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        method: Any = channel.unary_unary("/T/Get")
        method(b"", timeout=5)


async def by_grpc_async(port: int) -> None:
    async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
        method: Any = channel.unary_unary("/T/Get")
        await method(b"", timeout=5)


async def by_asyncpg(port: int) -> None:
    await asyncpg.connect(host=HOST, port=port, user="u", database="d", ssl=False)


def by_pymysql(port: int) -> None:
    pymysql.connect(host=HOST, port=port, user="u").close()


def by_sqlalchemy(port: int) -> None:
    engine = sqlalchemy.create_engine(f"mysql+pymysql://u@{HOST}:{port}/d")
    engine.connect().close()


def by_pymongo(port: int) -> None:
    with pymongo.MongoClient[Any](HOST, port, serverSelectionTimeoutMS=50) as driver:
        driver.admin.command("ping")


def by_pika(port: int) -> None:
    pika.BlockingConnection(pika.ConnectionParameters(HOST, port)).close()


def by_kombu(port: int) -> None:
    with kombu.Connection(f"amqp://{HOST}:{port}//") as driver:
        driver.ensure_connection(max_retries=1, timeout=1)


def by_ldap(port: int) -> None:
    import ldap3  # its own imports warn

    ldap3.Connection(ldap3.Server(HOST, port, connect_timeout=5), auto_bind=True)


def by_smtp(port: int) -> None:
    smtplib.SMTP(HOST, port, timeout=5).close()


def by_boto(port: int) -> None:
    boto3.client(
        "s3",
        endpoint_url=f"http://{HOST}:{port}",
        region_name="eu-west-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"max_attempts": 0}, read_timeout=1),
    ).list_buckets()


def by_websockets(port: int) -> None:
    websockets.sync.client.connect(f"ws://{HOST}:{port}/", proxy=None).close()


def by_dns(port: int) -> None:
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port, resolver.lifetime = [HOST], port, SHORT
    resolver.resolve("name.invalid")


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        (by_redis, ResultKind.UNREACHED),
        (by_redis_async, ResultKind.UNREACHED),
        (by_valkey, ResultKind.UNREACHED),
        (by_grpc, ResultKind.FAILED),
        (by_grpc_async, ResultKind.FAILED),
        (by_asyncpg, ResultKind.UNREACHED),
        (by_pymysql, ResultKind.UNREACHED),
        (by_sqlalchemy, ResultKind.UNREACHED),
        (by_pymongo, ResultKind.UNREACHED),
        (by_pika, ResultKind.UNREACHED),
        (by_kombu, ResultKind.UNREACHED),
        (by_ldap, ResultKind.UNREACHED),
        (by_smtp, ResultKind.UNREACHED),
        (by_boto, ResultKind.UNREACHED),
        (by_websockets, ResultKind.UNREACHED),
        (by_dns, ResultKind.TIMED_OUT),
    ],
    ids=lambda one: one.__name__[3:] if callable(one) else "",
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_closed_port_of_driver_is_counted(fails: Fails, kind: ResultKind, closed_port: int) -> None:
    assert result_of(lambda: fails(closed_port)).kind is kind


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        (by_redis, ResultKind.FAILED),
        (by_grpc, ResultKind.FAILED),
        (by_asyncpg, ResultKind.FAILED),
        (by_pymysql, ResultKind.FAILED),
        (by_sqlalchemy, ResultKind.FAILED),
        (by_pika, ResultKind.FAILED),
        (by_ldap, ResultKind.FAILED),
        (by_smtp, ResultKind.FAILED),
        (by_boto, ResultKind.FAILED),
        (by_websockets, ResultKind.FAILED),
    ],
    ids=lambda one: one.__name__[3:] if callable(one) else "",
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_connection_that_ends_early_is_counted(fails: Fails, kind: ResultKind) -> None:
    with Closing() as server:
        found = result_of(lambda: fails(server.port))
    assert found.kind in {kind, ResultKind.UNREACHED}
    assert found.may_have_run or found.kind is ResultKind.UNREACHED


def test_failure_of_driver_is_repeated_and_opens_the_breaker(closed_port: int) -> None:
    client = Client(attempts=3)
    sent = []

    def read() -> None:
        sent.append(1)
        with redis.Redis(HOST, closed_port, retry=Retry(NoBackoff(), 0)) as driver:
            driver.get("a")

    with pytest.raises(redis.ConnectionError):
        client.run_now("cache", read, idempotent=True)
    assert len(sent) == 3

    def opens() -> bool:
        error_of(lambda: client.run_now("cache", read))
        return list(client.breaker.states().values()) != ["closed"]

    until(opens, "the breaker opens")


def test_reading_errors_imports_no_driver() -> None:
    code = (
        "import sys; from sluicegate.resilience import Client, gather, resilient, soft; "
        "from sluicegate.resilience.errors.registry import result_of_driver_error as read; "
        "read(ConnectionResetError()); "
        "print([m for m in ('httpx', 'grpc', 'redis', 'requests', 'urllib3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
