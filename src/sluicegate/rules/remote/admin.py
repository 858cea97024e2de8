"""Admin: the operations of a rulebook that a server keeps.

    admin = RemoteRuleAdmin("https://rules.example:7443", token=token, ca="ca.pem")
    admin.propose({"shop.yaml": text}, base="live", message="More for the shop")

Every operation is sent as the table in `contracts.rule_admin` says. The server knows the caller by
the token or the certificate; `by` is not sent. Each change carries a key of its own, so one whose
response was lost is sent again and done once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Event
from typing import Any, Final, final
from urllib.parse import quote, urlencode

from sluicegate.contracts.access import Identity
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule_admin import BODY, FLAG, PATH, QUERY, Answer, Operation, RuleAdmin
from sluicegate.doors.http.identity import SPEAKS_FOR
from sluicegate.rules.remote.exchange import BrokenExchange, Exchange, ServerResponse, answer_of
from sluicegate.rules.remote.server import ANSWER_BYTES_MAX, TIMEOUT_S_DEFAULT, server_of
from sluicegate.system import SystemChance, SystemClock

ATTEMPTS_MAX: Final = 3
WAIT_S_MAX: Final = 20.0  # of one question; a longer wait asks several
WAIT_S_MIN: Final = 0.2  # from one question of a wait to the next

_ROOT: Final = "/v1/rules"
# The answer was too slow for the server's own bound; what was asked goes on.
_TOO_SLOW: Final = 504


@final
class RemoteRuleAdmin(RuleAdmin):
    """A rulebook elsewhere. For any thread; nothing stays open between calls."""

    __slots__ = ("_chance", "_clock", "_exchange", "_fields", "_server", "url")

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        ca: str = "",
        cert: str = "",
        key: str = "",
        timeout_s: float = TIMEOUT_S_DEFAULT,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        insecure: bool = False,
        speak_for: str = "",
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        """`ca` signs the server, `cert` and `key` are ours; PEM files. `timeout_s` is a call's.

        `insecure` sends the token to other machines without TLS. `speak_for` is the name of a
        person who has logged in here; the token then takes the grant speak-for.
        """
        self._server = server_of(
            url,
            token=token,
            ca=ca,
            cert=cert,
            key=key,
            timeout_s=timeout_s,
            answer_bytes_max=answer_bytes_max,
            insecure=insecure,
        )
        self.url = url
        self._fields = {SPEAKS_FOR.decode(): quote(speak_for, safe="@")} if speak_for else {}
        self._clock = SystemClock() if clock is None else clock
        self._chance = SystemChance() if chance is None else chance
        self._exchange = Exchange(self._server, self._clock)

    def __repr__(self) -> str:
        return f"<RemoteRuleAdmin {self.url}>"

    def call(self, operation: Operation, arguments: Mapping[str, Any], *, by: Identity) -> Any:
        """Send an operation to the server, and return its result."""
        return (
            self._wait(operation, arguments)
            if operation.waits
            else self._send(operation, arguments)
        )

    # Inside.

    def _wait(self, operation: Operation, arguments: Mapping[str, Any]) -> Answer:
        """Wait in several requests; the last result once the time is over."""
        until_us = self._clock.now_us() + int(arguments["timeout_s"] * 1_000_000)
        left_s = max(arguments["timeout_s"], 0.0)
        while True:
            sent_us, timeout_s = self._clock.now_us(), min(left_s, WAIT_S_MAX)
            part = {**arguments, "timeout_s": f"{timeout_s:.3f}"}
            answer: Answer = self._send(operation, part, longer_s=timeout_s)
            now_us = self._clock.now_us()
            left_s = (until_us - now_us) / 1_000_000
            if answer.get("reached") or left_s <= 0:
                return answer
            # A server that responds too early is not asked again without a pause.
            rest_s = WAIT_S_MIN - (now_us - sent_us) / 1_000_000
            if rest_s > 0:
                Event().wait(min(rest_s, left_s))

    def _send(
        self, operation: Operation, arguments: Mapping[str, Any], *, longer_s: float = 0.0
    ) -> Any:
        fields: dict[str, dict[str, Any]] = {PATH: {}, QUERY: {}, BODY: {}}
        for argument in operation.arguments:
            value = arguments[argument.name]
            # What the server takes by default is not sent: an older one may not know the argument.
            optional = argument.place == QUERY or argument.kind == FLAG
            if not optional or value not in ("", argument.default):
                fields[argument.place][argument.wire] = value
        path = operation.path.replace("{+", "{").format_map(
            {name: _path_part(name, value) for name, value in fields[PATH].items()}
        )
        if fields[QUERY]:
            path += f"?{urlencode(fields[QUERY], errors='replace')}"
        body, headers = None, self._fields
        if operation.changes:
            body = json.dumps(fields[BODY], default=dict).encode("ascii")
            json_fields = {"Content-Type": "application/json", "Idempotency-Key": self._key()}
            headers = {**self._fields, **json_fields}
        answer = self._request(operation.method, path, body, headers, longer_s)
        if not operation.items:
            return answer
        items = answer.get(operation.items)
        if not isinstance(items, list):
            raise Unavailable(self._exchange.what, f"its answer has no list of {operation.items}")
        return items

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        longer_s: float,
    ) -> Answer:
        """Ask, and again where the answer was lost: reads change nothing, changes have a key."""
        timeout_s = self._server.timeout_s + longer_s
        until_us = self._clock.now_us() + int(timeout_s * 1_000_000)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            left_s = (until_us - self._clock.now_us()) / 1_000_000
            last = attempt == ATTEMPTS_MAX or left_s <= 0
            try:
                response = self._exchange.ask(method, _ROOT + path, body, headers, left_s)
            except BrokenExchange:
                if last or self._clock.now_us() >= until_us:
                    raise
            else:
                if last or response.status != _TOO_SLOW:
                    return self._answer(response)
        raise AssertionError("the last attempt answers or raises")

    def _answer(self, response: ServerResponse) -> Answer:
        return answer_of(response, self._exchange.what)

    def _key(self) -> str:
        return "".join(f"{int(self._chance.draw() * 2**48):012x}" for _ in range(3))


def _path_part(field: str, value: str) -> str:
    """A named part of a path."""
    if not value:
        raise BadValue(field, value, "say which")
    return quote(value, safe="", errors="replace")
