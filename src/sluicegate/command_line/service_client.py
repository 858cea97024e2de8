"""Service client: how commands call a running service over HTTP.

Its address comes from flags, the token from a flag or the environment. A response is returned
whatever its status; none at all is `Unavailable`. What is read is bounded in bytes and in time.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple, final
from urllib.parse import SplitResult, urlsplit

from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable

TOKEN_VARIABLE: Final = "SLUICEGATE_TOKEN"
RESPONSE_BYTES_MAX: Final = 64 << 20
_SCHEMES: Final = frozenset({"http", "https"})
_NO_TOKEN: Final = frozenset({401, 403})


class ServiceAddress(NamedTuple):
    """A service, and as whom it is asked; as `address_from` has checked it."""

    url: str
    token: str = ""
    ca: str = ""
    tls_name: str = ""  # whom its certificate is for, where that is not the host of the URL


class ServiceResponse(NamedTuple):
    """What came back. `body` is read as JSON, and None where that is none."""

    status: int
    reason: str
    body: Any
    retry_after: str

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked."""
        return 200 <= self.status < 300

    @property
    def error(self) -> str:
        """What went wrong, in its own words if it has any."""
        body = self.body if isinstance(self.body, dict) else {}
        return str(body.get("detail") or body.get("title") or self.reason)


def add_address_flags(parser: ArgumentParser, default: str, grant: str, *names: str) -> None:
    """The flags that say which service, and who asks; `names` are those of its URL."""
    parser.add_argument(*names, default=default, metavar="URL", help=f"(default {default})")
    add_token_flags(parser, grant)


def add_token_flags(parser: ArgumentParser, grant: str) -> None:
    """The flags that say who asks, and whom it trusts."""
    parser.add_argument("--ca", default="", metavar="FILE", help="authorities to trust, PEM")
    parser.add_argument("--token", default="", help=f"{grant}; better in {TOKEN_VARIABLE}")


def address_from(url: str, arguments: Namespace, *, flag: str, example: str) -> ServiceAddress:
    """The service at a URL, with the token of the flags; `flag` is where the URL stood."""
    check_url(url, flag, example)
    return ServiceAddress(url, token_from(arguments), arguments.ca)


def token_from(arguments: Namespace) -> str:
    """The token of the flags, or of the variable."""
    token = str(arguments.token or os.environ.get(TOKEN_VARIABLE, ""))
    if not (token.isascii() and token.isprintable()):
        remedy = f"give letters, digits and signs of ASCII, or set {TOKEN_VARIABLE}"
        raise BadValue("--token", "(not shown)", remedy)
    return token


def ask(
    address: ServiceAddress,
    what: str,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout_s: float,
    grant: str = "",
) -> Any:
    """What it answers to one question; `what` is what errors call it, and `grant` what it takes."""
    with closing(ServiceClient(address, what, timeout_s=timeout_s)) as client:
        headers = {} if body is None else {"Content-Type": "application/json"}
        response = client.call(method, path, body, headers)
    check_grant(what, response, grant)
    if not response.ok or response.body is None:
        raise SluicegateError(f"{what} answers {response.status}: {response.error}")
    return response.body


def check_grant(what: str, response: ServiceResponse, grant: str) -> None:
    """Raise what to do about it, if it does not know who asks, or does not let them."""
    if grant and response.status in _NO_TOKEN:
        raise SluicegateError(
            f"{what} answers {response.status}: this takes a token with the grant {grant}; "
            f"give it in {TOKEN_VARIABLE}"
        )


@final
class ServiceClient:
    """A connection to one service, for one thread; opened when it is used, and again if it broke.

    What the URL has behind the host stands before every path.
    """

    def __init__(self, address: ServiceAddress, what: str, *, timeout_s: float) -> None:
        at = urlsplit(address.url)
        self.what = what
        self._prefix = at.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        self._connection = _connection(at, address, timeout_s)

    def call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> ServiceResponse:
        """The response, whatever it says; `Unavailable` if there is none."""
        try:
            self._connection.request(
                method, self._prefix + path, body, {**headers, **self._headers}
            )
            response = self._connection.getresponse()
            data = response.read(RESPONSE_BYTES_MAX)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self.close()
            words = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise Unavailable(self.what, words or type(error).__name__) from None
        return ServiceResponse(
            response.status,
            response.reason,
            _json_of(data),
            response.headers.get("Retry-After", ""),
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _connection(
    at: SplitResult, address: ServiceAddress, timeout_s: float
) -> http.client.HTTPConnection | http.client.HTTPSConnection:
    host = at.hostname or ""
    if at.scheme == "http":
        return http.client.HTTPConnection(host, at.port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadValue("--ca", address.ca, f"it cannot be read: {error}") from None
    if address.tls_name:
        return _NamedConnection(host, at.port, timeout_s, context, address.tls_name)
    return http.client.HTTPSConnection(host, at.port, timeout=timeout_s, context=context)


class _NamedConnection(http.client.HTTPConnection):
    """To an address, over TLS with a certificate that is for a name."""

    default_port = http.client.HTTPS_PORT

    def __init__(
        self, host: str, port: int | None, timeout_s: float, context: ssl.SSLContext, tls_name: str
    ) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._context = context
        self._tls_name = tls_name

    def connect(self) -> None:
        """Connect, and check whose certificate is shown."""
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._tls_name)


def check_url(url: str, flag: str, example: str) -> None:
    """Raise for what is no address of a service; `flag` is where it stood."""
    try:
        at = urlsplit(url)
        right = at.scheme in _SCHEMES and bool(at.hostname) and at.port != 0
    except ValueError:
        right = False
    if not right:
        raise BadValue(flag, url, f"write it as {example}")


def _json_of(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
