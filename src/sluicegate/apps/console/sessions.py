"""Sessions: who has logged in with which token, for browsers, which have only cookies to show.

A session is a random name for a token, known here and to one browser. The token is looked up at
each request, so that a withdrawn token ends its sessions. Bounds: the settings' time,
`PERSON_SESSIONS_MAX` for each person, whose oldest session ends first, and `SESSIONS_MAX` for all:
then the person with the most sessions loses the oldest.

There are two kinds: of the console's own access file, and of the rulebook, which knows its people
itself. Their cookies have different names, and a token of one is never shown to the other.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final, Generic, NamedTuple, TypeVar, final

from sluicegate.contracts.access import REVOKED, Standing

SESSIONS_MAX: Final = 1_000
PERSON_SESSIONS_MAX: Final = 20
NAME_BYTES: Final = 32
COOKIE: Final = "sluicegate"
_US: Final = 1_000_000

T = TypeVar("T")


class SessionEnd(NamedTuple):
    """When a session ends by itself, and whether it was ended before."""

    standing: Standing
    until_us: int


class _Session(NamedTuple):
    token: str
    end: SessionEnd
    person: str


@final
class Sessions(Generic[T]):
    """All sessions of this process; a restart ends them.

    `known` returns the owner of a token, and `name_of` the owner's name.
    """

    __slots__ = ("_cookie", "_known", "_name_of", "_secure", "_session_s", "_sessions")

    def __init__(
        self,
        known: Callable[[str], T | None],
        session_s: int,
        *,
        tls: bool,
        name_of: Callable[[T], str] = str,
        cookie: str = COOKIE,
    ) -> None:
        self._known = known
        self._name_of = name_of
        self._session_s = session_s
        self._secure = "; Secure" if tls else ""
        self._cookie = f"__Host-{cookie}" if tls else cookie
        self._sessions: dict[str, _Session] = {}  # oldest first

    def begin(self, token: str, now_us: int) -> bytes | None:
        """Return the cookie of a new session; None if the token is nobody's."""
        found = self._known(token)
        if found is None:
            return None
        person = self._name_of(found)
        self._make_room(person)
        name = base64.urlsafe_b64encode(os.urandom(NAME_BYTES)).decode().rstrip("=")
        end = SessionEnd(Standing(), now_us + self._session_s * _US)
        self._sessions[name] = _Session(token, end, person)
        return self._set(name, self._session_s)

    def find(self, cookies: bytes, now_us: int) -> T | None:
        """Return who shows these cookies."""
        name = self.name_in(cookies)
        session = self._sessions.get(name)
        if session is None:
            return None
        found = self._known(session.token) if now_us < session.end.until_us else None
        if found is None:
            self._forget(name)
        return found

    def end_of(self, cookies: bytes) -> SessionEnd | None:
        """Return the end of the session of these cookies, for what stays open as long as it."""
        session = self._sessions.get(self.name_in(cookies))
        return None if session is None else session.end

    def token_in(self, cookies: bytes, now_us: int) -> str:
        """Return the token of the session of these cookies; empty if there is none."""
        session = self._sessions.get(self.name_in(cookies))
        return "" if session is None or now_us >= session.end.until_us else session.token

    def end(self, cookies: bytes) -> bytes:
        """Forget the session of these cookies; return the cookie that makes the browser do so."""
        self._forget(self.name_in(cookies))
        return self._set("", 0)

    def _forget(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            session.end.standing.ended = REVOKED

    def name_in(self, cookies: bytes) -> str:
        """Return the name that these cookies show, of a session or not."""
        return cookie_in(cookies, self._cookie)

    def _make_room(self, person: str) -> None:
        """End a session of this person, or of the one with the most, if a new one needs it."""
        counts = Counter([one.person for one in self._sessions.values()])
        if counts[person] < PERSON_SESSIONS_MAX:
            if len(self._sessions) < SESSIONS_MAX:
                return
            person = max(counts, key=counts.__getitem__)
        oldest = next(name for name, one in self._sessions.items() if one.person == person)
        self._forget(oldest)

    def _set(self, value: str, age_s: int) -> bytes:
        return (
            f"{self._cookie}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict"
            f"{self._secure}"
        ).encode()


def cookie_in(cookies: bytes, name: str) -> str:
    """Return the value of a cookie; empty where there is none."""
    try:
        jar: Mapping[str, object] = SimpleCookie(cookies.decode("latin-1"))
    except CookieError:
        return ""
    return str(getattr(jar.get(name), "value", ""))
