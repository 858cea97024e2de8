"""Rulebook: asks a rulebook's server for whoever looks, in their name and nobody else's.

Who has signed in with a token of the rulebook is known by a session as in `sessions.py`. Who has
logged in here at a provider is asked for by their name, with the console's own token, if it has
one: what they may do is still written there, under that name. Anybody else is asked for without a
token, as the server may let anybody read. Calls block, so threads make them: `CALLS_MAX` at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar, final

from sluicegate.apps.console.sessions import Sessions
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.rule_admin import RuleAdmin
from sluicegate.doors.http.message import HttpRequest
from sluicegate.rules.remote.admin import RemoteRuleAdmin

CALLS_MAX: Final = 8
CALL_S_MAX: Final = 50.0  # to try a change on a large capture takes a while
COOKIE: Final = "sluicegate-rulebook"

T = TypeVar("T")


def _nobody(_request: HttpRequest) -> str:
    return ""


@final
class RulebookAccess:
    """The rulebook at a URL, and who is signed in there."""

    def __init__(
        self,
        url: str,
        ca: str,
        session_s: int,
        clock: Clock,
        *,
        tls: bool,
        token: str = "",
        person_of: Callable[[HttpRequest], str] = _nobody,
    ) -> None:
        """`token` is the console's own, with the grant speak-for; `person_of` says who has logged
        in at a provider."""
        self.url = url
        self._ca = ca
        self._clock = clock
        self._own_token = token
        self._person_of = person_of
        self.sessions: Sessions[str] = Sessions(_itself, session_s, tls=tls, cookie=COOKIE)
        self._pool = ThreadPoolExecutor(CALLS_MAX, "console-rulebook")
        self._admin("")  # a URL that cannot be is refused at the start

    def signed_in(self, request: HttpRequest) -> bool:
        """Whether this browser has shown a token."""
        return bool(self._token(request))

    def spoken_for(self, request: HttpRequest) -> str:
        """Return who is asked for by their name, for they have logged in here."""
        return "" if self._token(request) else self._person(request)

    async def sign_in(self, token: str) -> bytes | None:
        """Return the cookie of a new session; raise where the rulebook knows no such token."""
        await self._run(self._admin(token), lambda admin: admin.status())
        return self.sessions.begin(token, self._clock.now_us())

    async def call(self, request: HttpRequest, ask: Callable[[RuleAdmin], T]) -> T:
        """Return what the rulebook answers to this browser's person."""
        person = self.spoken_for(request)
        token = self._own_token if person else self._token(request)
        return await self._run(self._admin(token, person), ask)

    async def close(self) -> None:
        """Wait for the calls that are under way."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, partial(self._pool.shutdown, cancel_futures=True))

    async def _run(self, admin: RuleAdmin, ask: Callable[[RuleAdmin], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, ask, admin)

    def _token(self, request: HttpRequest) -> str:
        found = self.sessions.find(request.header(b"cookie"), self._clock.now_us())
        return found or ""

    def _person(self, request: HttpRequest) -> str:
        return self._person_of(request) if self._own_token else ""

    def _admin(self, token: str, person: str = "") -> RuleAdmin:
        return RemoteRuleAdmin(
            self.url, token=token, ca=self._ca, timeout_s=CALL_S_MAX, speak_for=person
        )


def _itself(token: str) -> str | None:
    """Any token: the rulebook was asked when the session began, and is at each call."""
    return token or None
