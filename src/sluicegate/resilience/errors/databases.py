"""Verdicts on drivers of databases: by SQLSTATE, error number, or the server's own words."""

from __future__ import annotations

from typing import Any, Final

from sluicegate.policies.client.call_result import CallResult
from sluicegate.resilience.errors.verdicts import (
    FAILED,
    REJECTED,
    TIMED_OUT,
    UNREACHED,
    Found,
    Verdict,
    by_mysql_code,
    by_resp_error,
    by_sqlstate,
    conflict,
    named,
    not_proven,
    overloaded,
    when_closed,
)

_SQLITE_BUSY: Final = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
# A primary that steps down or shuts down, and hosts that it cannot reach.
_MONGO_PASSING: Final = (6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436)


def _postgres(error: Any) -> Found:
    """asyncpg and psycopg have `sqlstate`, psycopg2 `pgcode`; without it the connection failed."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state:
        return by_sqlstate(str(state), error)
    refused = "connection failed" in str(error) or "connection to server at" in str(error)
    return CallResult(UNREACHED if refused else FAILED, error=error)


def _postgres_database(error: Any) -> Found:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return by_sqlstate(str(state), error) if state else CallResult(REJECTED, error=error)


def _mysql(error: Any) -> Found:
    return by_mysql_code(error.args[0] if error.args else None, error)


def _mysql_programming(error: Any) -> Found:
    return CallResult(REJECTED, error=error)


def _odbc(error: Any) -> Found:
    return by_sqlstate(str(error.args[0]) if error.args else "", error)


def _oracle(error: Any) -> Found:
    passing = bool(error.args) and getattr(error.args[0], "isrecoverable", False)
    return CallResult(FAILED if passing else REJECTED, error=error)


def _sqlite(error: Any) -> Found:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return conflict(error) if code in _SQLITE_BUSY else CallResult(REJECTED, error=error)


def _sqlalchemy(error: Any) -> Found:
    if isinstance(error.orig, Exception):
        return error.orig
    lost = getattr(error, "connection_invalidated", False)
    return CallResult(FAILED, error=error) if lost else None


def _mongo(error: Any) -> Found:
    if error.has_error_label("TransientTransactionError"):
        return conflict(error)
    passing = error.has_error_label("RetryableWriteError") or error.code in _MONGO_PASSING
    return CallResult(FAILED if passing else REJECTED, error=error)


def _no_host(error: Any) -> Found:
    """Cassandra: the first host's own error, for each host has been tried."""
    errors = getattr(error, "errors", None)
    found = list(errors.values()) if isinstance(errors, dict) else []
    return found[0] if found and isinstance(found[0], Exception) else not_proven(error)


_RESP: Final[dict[str, Verdict]] = {
    "AuthenticationError": REJECTED,
    "MaxConnectionsError": UNREACHED,
    "BusyLoadingError": not_proven,
    "ReadOnlyError": not_proven,
    "ClusterDownError": not_proven,
    "TryAgainError": not_proven,
    "OutOfMemoryError": overloaded,
    "ConnectionError": not_proven,
    "TimeoutError": TIMED_OUT,
    "InvalidResponse": FAILED,
    "ResponseError": by_resp_error,
    "RedisClusterException": not_proven,
}
_MYSQL: Final[dict[str, Verdict]] = {
    "OperationalError": _mysql,
    "InternalError": _mysql,
    "InterfaceError": _mysql,
    "DatabaseError": _mysql,
    "ProgrammingError": REJECTED,
    "IntegrityError": REJECTED,
    "DataError": REJECTED,
    "NotSupportedError": REJECTED,
}
_PSYCOPG: Final[dict[str, Verdict]] = {
    "OperationalError": _postgres,
    "InterfaceError": when_closed,
    "DatabaseError": _postgres_database,
}

DATABASES: Final[dict[str, Verdict]] = {
    **named("redis.exceptions", **_RESP),
    **named("valkey.exceptions", **_RESP, ValkeyClusterException=not_proven),
    **named("coredis.exceptions", **_RESP),
    **named("asyncpg.exceptions._base", PostgresError=_postgres, InterfaceError=when_closed),
    **named("psycopg", **_PSYCOPG),
    **named("psycopg.errors", ConnectionTimeout=UNREACHED),
    **named("psycopg_pool", PoolTimeout=UNREACHED, TooManyRequests=overloaded, PoolClosed=None),
    **named("psycopg2", **_PSYCOPG),
    **named("psycopg2.extensions", TransactionRollbackError=conflict, QueryCanceledError=TIMED_OUT),
    **named("pymysql.err", **_MYSQL),
    **named("MySQLdb", **_MYSQL),
    **named("MySQLdb._exceptions", **_MYSQL),
    **named("asyncmy.errors", **_MYSQL),
    **named("mysql.connector.errors", **_MYSQL, PoolError=UNREACHED),
    **named("pyodbc", OperationalError=_odbc, ProgrammingError=REJECTED, Error=_odbc),
    **named("oracledb.exceptions", DatabaseError=_oracle, InterfaceError=_oracle),
    **named("sqlite3", OperationalError=_sqlite),
    **named(
        "sqlalchemy.exc", TimeoutError=UNREACHED, DisconnectionError=FAILED, DBAPIError=_sqlalchemy
    ),
    **named(
        "pymongo.errors",
        ServerSelectionTimeoutError=UNREACHED,
        WaitQueueTimeoutError=UNREACHED,
        NotPrimaryError=not_proven,
        NetworkTimeout=TIMED_OUT,
        ConnectionFailure=FAILED,
        ExecutionTimeout=TIMED_OUT,
        BulkWriteError=REJECTED,
        OperationFailure=_mongo,
    ),
    **named(
        "cassandra",
        OperationTimedOut=TIMED_OUT,
        Timeout=TIMED_OUT,
        Unavailable=UNREACHED,
        CoordinationFailure=FAILED,
        RequestValidationException=REJECTED,
        AuthenticationFailed=REJECTED,
    ),
    **named("cassandra.cluster", NoHostAvailable=_no_host),
    **named("cassandra.pool", NoConnectionsAvailable=UNREACHED),
    **named("cassandra.connection", ConnectionException=FAILED, ConnectionBusy=UNREACHED),
    **named(
        "cassandra.protocol",
        OverloadedErrorMessage=overloaded,
        IsBootstrappingErrorMessage=UNREACHED,
        ServerError=FAILED,
        ErrorMessage=REJECTED,
    ),
    **named(
        "acsylla._cython.cyacsylla",
        CassErrorLibNoHostsAvailable=not_proven,
        CassErrorLibRequestTimedOut=TIMED_OUT,
        CassErrorLibRequestQueueFull=overloaded,
        CassErrorServerOverloaded=overloaded,
        CassErrorServerIsBootstrapping=UNREACHED,
        CassErrorServerUnavailable=UNREACHED,
        CassErrorServerReadTimeout=TIMED_OUT,
        CassErrorServerWriteTimeout=TIMED_OUT,
        CassErrorSourceLib=FAILED,
        CassErrorSourceServer=REJECTED,
    ),
    **named(
        "neo4j.exceptions",
        ServiceUnavailable=not_proven,
        SessionExpired=FAILED,
        TransientError=conflict,
        Neo4jError=REJECTED,
    ),
    **named(
        "pymemcache.exceptions",
        MemcacheServerError=FAILED,
        MemcacheClientError=REJECTED,
    ),
}
