"""Sessions: who has logged in with which token, for browsers, which have only cookies to show.

A session is a random name for a token, known here and to one browser. The token is looked up anew
at each request, so that one that is withdrawn ends its sessions. Bounds: `SESSIONS_MAX`, of which
the oldest goes first, and the settings' time.
"""

from __future__ import annotations

import base64
import os
from collections import OrderedDict
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final, NamedTuple, final

from sluicegate.contracts.access import Access, Identity

SESSIONS_MAX: Final = 1_000
NAME_BYTES: Final = 32
_US: Final = 1_000_000


class _Session(NamedTuple):
    token: str
    until_us: int


@final
class Sessions:
    """All sessions of this process; a restart ends them."""

    __slots__ = ("_access", "_cookie", "_secure", "_session_s", "_sessions")

    def __init__(self, access: Access, session_s: int, *, tls: bool) -> None:
        self._access = access
        self._session_s = session_s
        self._secure = "; Secure" if tls else ""
        self._cookie = "__Host-sluicegate" if tls else "sluicegate"
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, token: str, now_us: int) -> bytes | None:
        """Return the cookie of a new session; None if the token is nobody's."""
        if self._access.by_token(token) is None:
            return None
        name = base64.urlsafe_b64encode(os.urandom(NAME_BYTES)).decode().rstrip("=")
        self._sessions[name] = _Session(token, now_us + self._session_s * _US)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return self._set(name, self._session_s)

    def find(self, cookies: bytes, now_us: int) -> Identity | None:
        """Return who shows these cookies."""
        name = self._name_in(cookies)
        session = self._sessions.get(name)
        if session is None:
            return None
        identity = self._access.by_token(session.token) if now_us < session.until_us else None
        if identity is None:
            del self._sessions[name]
        return identity

    def end(self, cookies: bytes) -> bytes:
        """Forget the session of these cookies; return the cookie that makes the browser do so."""
        self._sessions.pop(self._name_in(cookies), None)
        return self._set("", 0)

    def _name_in(self, cookies: bytes) -> str:
        try:
            jar: Mapping[str, object] = SimpleCookie(cookies.decode("latin-1"))
        except CookieError:
            return ""
        return str(getattr(jar.get(self._cookie), "value", ""))

    def _set(self, value: str, age_s: int) -> bytes:
        return (
            f"{self._cookie}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict"
            f"{self._secure}"
        ).encode()
