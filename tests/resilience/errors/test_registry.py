"""The registry by name, for drivers that are not installed here, and the rules of a user."""

from __future__ import annotations

import errno
import ssl
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.call_result import ResultKind
from sluicegate.resilience.errors.registry import ErrorRules, result_of_driver_error

K = ResultKind


def made(name: str, *args: object, **attributes: object) -> Exception:
    """An exception of a class that has this full name."""
    module, _, short = name.rpartition(".")
    kind = type(short, (Exception,), {"__module__": module, **attributes})
    error: Exception = kind(*args)
    return error


class Answer:
    """A response of any driver, with headers as plain text."""

    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


AWS = {
    "Error": {"Code": "ThrottlingException"},
    "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {"retry-after": "2"}},
}
POSTGRES = "asyncpg.exceptions._base.PostgresError"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (made(POSTGRES, sqlstate="40001"), K.LIMITED),
        (made(POSTGRES, sqlstate="53300"), K.OVERLOADED),
        (made(POSTGRES, sqlstate="57P01"), K.FAILED),
        (made(POSTGRES, sqlstate="57014"), K.TIMED_OUT),
        (made(POSTGRES, sqlstate="23505"), K.REJECTED),
        (made("psycopg.OperationalError", "connection failed: refused"), K.UNREACHED),
        (made("psycopg.OperationalError", "server closed the connection"), K.FAILED),
        (made("psycopg2.OperationalError", "deadlock", pgcode="40P01"), K.LIMITED),
        (made("psycopg_pool.PoolTimeout", "no connection"), K.UNREACHED),
        (made("MySQLdb.OperationalError", 2006, "gone away"), K.FAILED),
        (made("MySQLdb.OperationalError", 1040, "too many"), K.OVERLOADED),
        (made("pymysql.err.OperationalError", 1213, "deadlock"), K.LIMITED),
        (made("mysql.connector.errors.InterfaceError", 2003, "refused"), K.UNREACHED),
        (made("redis.exceptions.BusyLoadingError", "LOADING"), K.UNREACHED),
        (made("redis.exceptions.ResponseError", "BUSY full retry_after_ms=70"), K.OVERLOADED),
        (made("redis.exceptions.ResponseError", "WRONGTYPE"), K.REJECTED),
        (made("cassandra.protocol.OverloadedErrorMessage"), K.OVERLOADED),
        (made("kafka.errors.KafkaError", retriable=True), K.FAILED),
        (made("kafka.errors.KafkaError", retriable=False), K.REJECTED),
        (made("kafka.errors.NoBrokersAvailable"), K.UNREACHED),
        (made("aiormq.exceptions.AMQPConnectionError"), K.UNREACHED),
        (made("botocore.exceptions.ClientError", response=AWS), K.LIMITED),
        (made("google.api_core.exceptions.GoogleAPICallError", code=503), K.FAILED),
        (made("google.api_core.exceptions.GoogleAPICallError", code=504), K.TIMED_OUT),
        (made("google.api_core.exceptions.Aborted", code=409), K.LIMITED),
        (made("opensearchpy.exceptions.TransportError", status_code=429), K.LIMITED),
        (made("opensearchpy.exceptions.TransportError", status_code="N/A"), K.FAILED),
        (made("elastic_transport.ConnectionTimeout"), K.TIMED_OUT),
        (made("openai.APIStatusError", response=Answer(503, Retry_After="3")), K.OVERLOADED),
        (made("websocket._exceptions.WebSocketBadStatusException", status_code=502), K.FAILED),
        (made("smtplib.SMTPResponseException", smtp_code=451), K.FAILED),
        (made("smtplib.SMTPResponseException", smtp_code=550), K.REJECTED),
        (made("aiosmtplib.errors.SMTPResponseException", code=421), K.OVERLOADED),
        (made("paramiko.ssh_exception.NoValidConnectionsError"), K.UNREACHED),
        (made("paramiko.ssh_exception.AuthenticationException"), K.REJECTED),
        (made("dns.resolver.NXDOMAIN"), K.REJECTED),
        (made("ldap.SERVER_DOWN"), K.UNREACHED),
        (made("nats.errors.NoServersError"), K.UNREACHED),
        (made("neo4j.exceptions.TransientError"), K.LIMITED),
        (made("sqlite3.OperationalError", sqlite_errorcode=5), K.LIMITED),
        (made("sqlalchemy.exc.DBAPIError", orig=made(POSTGRES, sqlstate="57P01")), K.FAILED),
        (made("sqlalchemy.exc.DBAPIError", orig=KeyError("a bug")), K.FAILED),
        (made("httpx.LocalProtocolError"), None),
        (made("my_driver.Error"), None),
        (ssl.SSLEOFError(8, "EOF occurred"), K.FAILED),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), K.UNREACHED),
        (OSError(errno.EMFILE, "Too many open files"), K.UNREACHED),
        (OSError(errno.ENFILE, "Too many open files in system"), K.UNREACHED),
        (OSError(errno.ENOBUFS, "No buffer space available"), K.UNREACHED),
        (ExceptionGroup("g", [ConnectionResetError(), TimeoutError()]), K.FAILED),
        (ExceptionGroup("g", [ExceptionGroup("h", [ConnectionRefusedError()])]), K.UNREACHED),
        (ExceptionGroup("g", [ConnectionResetError(), KeyError("a bug")]), None),
        (KeyError("a bug"), None),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_error_of_known_name_is_read(error: Exception, kind: ResultKind | None) -> None:
    found = result_of_driver_error(error)
    assert (None if found is None else found.kind) is kind
    if found is not None:
        assert found.error is error


def test_error_of_derived_class_is_read_by_its_base() -> None:
    base = type(made("redis.exceptions.ConnectionError"))
    own = type("MyConnectionError", (base,), {"__module__": "my_app"})("lost")
    found = result_of_driver_error(own)
    assert found is not None
    assert (found.kind, found.unproven) == (K.UNREACHED, True)


def test_busy_reply_says_when_to_come_back() -> None:
    found = result_of_driver_error(made("redis.exceptions.ResponseError", "BUSY retry_after_ms=70"))
    assert found is not None
    assert found.retry_after_us == 70_000


@pytest.mark.parametrize(
    "on", [KeyError, (KeyError, IndexError), lambda error: isinstance(error, KeyError)]
)
def test_error_named_by_on_is_failure(on: Any) -> None:
    found = ErrorRules(on).result_of(KeyError("mine"))
    assert found is not None
    assert found.kind is K.FAILED
    assert ErrorRules(on).result_of(TypeError("a bug")) is None
    lost = ErrorRules(on).result_of(ConnectionRefusedError())
    assert lost is not None, "known errors stay known"
    assert lost.kind is K.UNREACHED


def test_rejection_named_by_on_is_failure() -> None:
    error = made("smtplib.SMTPResponseException", smtp_code=550)
    found = ErrorRules(on=type(error)).result_of(error)
    assert found is not None
    assert found.kind is K.FAILED


@pytest.mark.parametrize(
    "ignore", [OSError, (ConnectionResetError,), lambda error: "peer" in str(error)]
)
def test_error_named_by_ignore_passes_through(ignore: Any) -> None:
    rules = ErrorRules(on=ConnectionError, ignore=ignore)
    assert rules.result_of(ConnectionResetError("by peer")) is None


@pytest.mark.parametrize("match", [int, "KeyError", (KeyError, 3)])
def test_rule_that_matches_no_error_is_refused(match: Any) -> None:
    with pytest.raises(BadValue, match=r"^on: .*give an exception class"):
        ErrorRules(on=match)
