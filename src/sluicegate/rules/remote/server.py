"""Server: where a rulebook's server is, how it is reached, and what it is shown of us.

A token is sent to nobody but the server that was named: over TLS, or within this machine. No error
and no `repr` shows it.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final, final
from urllib.parse import SplitResult, urlsplit

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.binding import Address, is_private

TOKEN_CHARS_MAX: Final = 1_024
TIMEOUT_S_DEFAULT: Final = 120.0
TIMEOUT_S_MAX: Final = 3_600.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
URL_CHARS_MAX: Final = 2_048

_HOW: Final = (
    "write it as https://rules.example:7443, http://127.0.0.1:7080 or unix:/run/rules.sock"
)
_UNIX: Final = "unix:"
_PORTS: Final = {"http": 80, "https": 443}


@final
@dataclass(frozen=True, slots=True)
class RulebookServer:
    """A server. `path` is that of a Unix socket, `prefix` what stands before `/v1/rules`."""

    url: str
    host: str
    port: int
    path: str
    prefix: str
    tls: ssl.SSLContext | None = field(repr=False)
    token: str = field(repr=False)
    timeout_s: float
    answer_bytes_max: int


def server_of(
    url: str,
    *,
    token: str,
    ca: str,
    cert: str,
    key: str,
    timeout_s: float,
    answer_bytes_max: int,
    insecure: bool,
) -> RulebookServer:
    """The place that these amount to; a `BadValue` says which of them cannot be used."""
    if isinstance(timeout_s, bool) or not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise BadValue("timeout_s", timeout_s, f"give seconds, up to {TIMEOUT_S_MAX:,.0f}")
    if isinstance(answer_bytes_max, bool) or answer_bytes_max < 1:
        raise BadValue("answer_bytes_max", answer_bytes_max, "give a number of bytes")
    _check_token(token)
    if url.startswith(_UNIX):
        path = url.removeprefix(_UNIX)
        if not path or "\0" in path:
            raise BadValue("url", url, _HOW)
        _no_tls(url, ca, cert, key)
        return RulebookServer(
            url, "localhost", 0, path, "", None, token, timeout_s, answer_bytes_max
        )
    parts = _split(url)
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    tls = None
    if parts.scheme == "https":
        tls = _context(ca, cert, key)
    else:
        _no_tls(url, ca, cert, key)
        if token and not insecure and not is_private(Address(host, port)):
            remedy = "others could read the token on its way: use https, or say insecure"
            raise BadValue("url", url, remedy)
    prefix = parts.path.rstrip("/")
    return RulebookServer(url, host, port, "", prefix, tls, token, timeout_s, answer_bytes_max)


def _check_token(token: str) -> None:
    if len(token) > TOKEN_CHARS_MAX or not all("!" <= char <= "~" for char in token):
        remedy = f"give at most {TOKEN_CHARS_MAX:,} letters, digits and signs of ASCII"
        raise BadValue("token", "(not shown)", remedy)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadValue("url", "(not shown)", _HOW) from None
    if parts.username is not None or parts.password is not None:
        raise BadValue("url", "(not shown)", f"leave out user and password, give a token; {_HOW}")
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= URL_CHARS_MAX
    if not plain or parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise BadValue("url", url, _HOW)
    if parts.query or parts.fragment:
        raise BadValue("url", url, f"leave out what follows the path; {_HOW}")
    return parts


def _no_tls(url: str, ca: str, cert: str, key: str) -> None:
    for name, value in (("ca", ca), ("cert", cert), ("key", key)):
        if value:
            raise BadValue(name, value, f"it is for https, and the url is {url}")


def _context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    if bool(cert) != bool(key):
        name, value = ("key", key) if cert else ("cert", cert)
        raise BadValue(name, value, "give a certificate and its key, or neither")
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ValueError) as error:
        raise BadValue("ca", ca, f"give PEM certificates of authorities ({error})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert:
        try:
            # An encrypted key would ask for its password on a terminal.
            context.load_cert_chain(cert, key, password=_no_password)
        except (OSError, ValueError) as error:
            remedy = f"give a PEM certificate and, in {key}, its own key without a password"
            raise BadValue("cert", cert, f"{remedy} ({error})") from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")
