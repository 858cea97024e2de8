"""Asking: how the verbs of `headgate kv` speak to a running dispatcher, over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from argparse import ArgumentParser, Namespace
from typing import Any, Final
from urllib.parse import urlsplit

from headgate.contracts.errors import BadValue, HeadgateError, Unavailable

AT_DEFAULT: Final = "http://127.0.0.1:7080"
TOKEN_VARIABLE: Final = "HEADGATE_TOKEN"
TIMEOUT_S: Final = 600.0
ANSWER_BYTES_MAX: Final = 64 << 20


def add_where(parser: ArgumentParser, grant: str) -> None:
    """The flags that say which dispatcher, and who asks."""
    parser.add_argument(
        "--at", "--url", default=AT_DEFAULT, metavar="URL", help=f"(default {AT_DEFAULT})"
    )
    parser.add_argument("--ca", default="", metavar="FILE", help="authorities to trust, PEM")
    parser.add_argument("--token", default="", help=f"{grant}; better in {TOKEN_VARIABLE}")


def ask(arguments: Namespace, method: str, path: str, body: bytes | None = None) -> Any:
    """What it answers, read as JSON; what it refuses is raised in its own words."""
    at = arguments.at
    where = urlsplit(at)
    if where.scheme not in {"http", "https"} or not where.hostname:
        raise BadValue("--at", at, f"write it as {AT_DEFAULT}")
    connection = _connection(where.scheme, where.hostname, where.port, arguments.ca)
    token = arguments.token or os.environ.get(TOKEN_VARIABLE, "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        said = answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        seen = str(error) or type(error).__name__
        raise Unavailable(f"the dispatcher at {at}", seen) from None
    finally:
        connection.close()
    try:
        told = json.loads(said)
    except ValueError:
        told = {}
    if answer.status >= 300:
        why = told.get("detail", answer.reason) if isinstance(told, dict) else answer.reason
        raise HeadgateError(f"the dispatcher at {at} answers {answer.status}: {why}")
    return told


def _connection(
    scheme: str, host: str, port: int | None, ca: str
) -> http.client.HTTPConnection | http.client.HTTPSConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadValue("--ca", ca, f"it cannot be read: {error}") from None
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
