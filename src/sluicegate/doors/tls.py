"""TLS: a listener's certificate, whom it trusts, and how both are changed while it runs.

A context is made whole before it takes the place of the old one: a bad file, or a key that is not
the certificate's, never replaces what works. Connections that are open keep the context that they
began with; each new one begins with the newest. The files are looked at now and then, so what
rotates them need not know of us; a half-written pair does not fit together, is refused, and is
looked at again once the other half has come.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.errors import BadValue

CERTIFICATE_BYTES_MAX: Final = 1024 * 1024
NAMES_MAX: Final = 64
_log: Final = logging.getLogger("sluicegate.listener")

_State: TypeAlias = "tuple[bytes | None, ...]"


class TlsFiles(NamedTuple):
    """The files: the certificate with its chain, its key, and who signs clients; "" is none.

    With `client_ca` a client must show a certificate that it has signed, or, where it is not
    `client_required`, may come without any.
    """

    certificate: str
    key: str
    client_ca: str = ""
    client_required: bool = True


@final
class Tls:
    """The TLS context of new connections; `context` is the newest that was good."""

    __slots__ = ("_alpn", "_file_state", "context", "failures", "files", "last_error", "reloads")

    def __init__(self, files: TlsFiles, alpn: Sequence[str] = ("http/1.1", "h2")) -> None:
        self.files = files
        self._alpn = list(alpn)
        self._file_state = _files_state(files)
        self.context = _make_context(files, self._alpn)
        self.reloads = 0
        self.failures = 0
        self.last_error = ""  # of the last reload; empty if it went well

    def reload(self) -> None:
        """Read the files anew; a `BadValue` says what is wrong, and what was good stays."""
        # Before reading: what is written meanwhile is found by the next look.
        self._file_state = _files_state(self.files)
        try:
            context = _make_context(self.files, self._alpn)
        except BadValue as error:
            self.failures += 1
            self.last_error = str(error)
            raise
        self.context = context
        self.reloads += 1
        self.last_error = ""

    def look(self) -> bool:
        """Reload if a file has changed; whether there is something new. Raises nothing."""
        if _files_state(self.files) == self._file_state:
            return False
        try:
            self.reload()
        except BadValue as error:
            _log.warning("the certificate stays as it was: %s", error)
            return False
        _log.info("new connections get the certificate now in %s", self.files.certificate)
        return True

    def set_alpn(self, alpn: Sequence[str]) -> None:
        """Offer these protocols; for a listener that serves fewer."""
        if list(alpn) != self._alpn:
            self._alpn = list(alpn)
            self.context = _make_context(self.files, self._alpn)


def names_in(certificate: dict[str, Any] | None) -> tuple[str, ...]:
    """The names in a verified certificate: its subject's common name, its DNS and URI names."""
    names: dict[str, None] = {}
    if certificate:
        for attributes in certificate.get("subject", ()):
            for name, value in attributes:
                if name == "commonName":
                    names[value] = None
        for kind, value in certificate.get("subjectAltName", ()):
            if kind in ("DNS", "URI"):
                names[value] = None
    return tuple(names)[:NAMES_MAX]


def _make_context(files: TlsFiles, alpn: list[str]) -> ssl.SSLContext:
    for field, path in (
        ("tls_cert", files.certificate),
        ("tls_key", files.key),
        ("tls_client_ca", files.client_ca),
    ):
        if path or field != "tls_client_ca":
            _check_file(field, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # RFC 9113 forbids HTTP/2 what is older than these; nobody who speaks to us needs it.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    try:
        # An encrypted key would ask for its password on a terminal that nobody watches.
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadValue(
            "tls_cert",
            files.certificate,
            f"give a PEM certificate and, in {files.key}, its own key without a password ({error})",
        ) from None
    if files.client_ca:
        try:
            context.load_verify_locations(files.client_ca)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadValue(
                "tls_client_ca", files.client_ca, f"give PEM certificates of authorities ({error})"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED if files.client_required else ssl.CERT_OPTIONAL
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def _check_file(field: str, path: str) -> None:
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        text = error.strerror or str(error)
        raise BadValue(field, path, f"give a file that we may read ({text})") from None
    if size > CERTIFICATE_BYTES_MAX:
        raise BadValue(field, path, f"give a file of at most {CERTIFICATE_BYTES_MAX:,} bytes")


def _no_password() -> str:
    raise ValueError("the key has a password")


def _files_state(files: TlsFiles) -> _State:
    return tuple(
        _file_state_of(path) for path in (files.certificate, files.key, files.client_ca) if path
    )


def _file_state_of(path: str) -> bytes | None:
    """Return a digest of what a file holds: two writes in one tick of its clock look alike."""
    try:
        with open(path, "rb") as file:
            return sha256(file.read(CERTIFICATE_BYTES_MAX + 1)).digest()
    except OSError:
        return None
