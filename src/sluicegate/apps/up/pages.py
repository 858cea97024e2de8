"""Pages: the HTTP of `sluicegate up`, on the door that every service has. It does not decide.

    GET, POST /v1/check    200 or the status of the refusal's reason, and the decision as JSON
    GET       /v1/state    what the view shows, as JSON
    GET       /healthz     204
    GET       /            what this is, for people

A request must name one of our own hosts, and one that a page of another site sends is refused,
unless `hosts` is None.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, final

from sluicegate.apps.up.counts import KEY_CHARS_MAX, Quantiles
from sluicegate.apps.up.named_limits import NamedLimits, compiled
from sluicegate.contracts.access import Identity
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.http.fields import query_of
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import TEXT, Finish, HttpReply, HttpRequest, json_reply
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.routes import Route
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.http.site import other_site
from sluicegate.doors.listener import Listener
from sluicegate.doors.listener_settings import ListenerSettings
from sluicegate.doors.sniff import Language
from sluicegate.limits.limiter import COST_MAX
from sluicegate.policies.access import OpenAccess
from sluicegate.wire.json_objects import parse_json

BODY_BYTES_MAX: Final = 64 * 1024
CONNECTIONS_MAX: Final = 512
GRACE_S: Final = 1.0
_FIELDS: Final = ("key", "rule", "cost")


@final
class UpPages(HttpHandler):
    """The handler; `url` is our own address, `hosts` the Host headers that may name it."""

    def __init__(self, limits: NamedLimits, url: str, hosts: frozenset[str] | None) -> None:
        super().__init__(OpenAccess(), hosts)
        self._limits = limits
        self._url = url
        routes = (
            Route("GET", "/", self._about, "What this is.", {}, open=True),
            Route("GET", "/healthz", self._health, "Whether it answers.", {}, health=True),
            Route("GET", "/v1/check", self._check_query, "May it enter?", {}, open=True),
            Route("POST", "/v1/check", self._check_body, "May it enter?", {}, open=True),
            Route("GET", "/v1/state", self._state, "What the view shows.", {}, open=True),
        )
        self.serve(routes, {}, title="sluicegate up", summary="Limits to try.", version="0.1.0")

    def handle(self, request: HttpRequest) -> HttpReply | Finish:
        """Count what is no request of ours."""
        found = super().handle(request)
        if isinstance(found, HttpReply) and 400 <= found.status < 500:
            self._limits.counts.bad_requests += 1
        return found

    def check_head(self, route: Route, request: HttpRequest) -> HttpReply | None:
        """Refuse what another site's page sends, reads too: each is counted."""
        return other_site(request) or super().check_head(route, request)

    def error_reply(self, route: Route, error: SluicegateError) -> HttpReply:
        """Count a field that cannot be used."""
        self._limits.counts.bad_requests += 1
        return super().error_reply(route, error)

    def _check_query(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        fields: dict[str, object] = dict(query_of(request, _FIELDS))
        cost = fields.get("cost")
        if isinstance(cost, str) and re.fullmatch(r"[0-9]{1,16}", cost):
            fields["cost"] = int(cost)
        return self._check(fields)

    def _check_body(self, _request: HttpRequest, _by: Identity, body: bytes) -> HttpReply:
        return self._check(_from_json(body))

    def _check(self, fields: Mapping[str, object]) -> HttpReply:
        limits = self._limits
        began_us = limits.clock.now_us()
        rule = _rule(fields.get("rule"), limits.rules)
        key, cost = _key(fields.get("key")), _cost(fields.get("cost", 1))
        try:
            decision = limits.check(rule, key, cost)
        except Exception:  # a bug of ours, which the door answers and the view shows
            limits.counts.faults += 1
            raise
        reply = decision_reply(decision)
        now_us = limits.clock.now_us()
        limits.counts.answered(now_us - began_us, now_us)
        return reply

    def _state(self, _request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return json_reply(state(self._limits))

    def _health(self, _request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return HttpReply(204)

    def _about(self, _request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        rules = "\n".join(f"  {rule.name:<12} {rule.rate}" for rule in self._limits.rules.values())
        name = next(iter(self._limits.rules))
        text = f"""\
sluicegate up: may a unit of work enter now, later, or not at all? DemoRequest, and see.

  curl -i '{self._url}/v1/check?rule={name}&key=you'
  curl -i '{self._url}/v1/check' -H 'Content-Type: application/json' \\
       -d '{{"rule": "{name}", "key": "you", "cost": 3}}'
  curl '{self._url}/v1/state'

200 is admitted, 429 refused; both come with the decision as JSON. Every key has its own limit.

Rules:
{rules}

This is for trying out: no authentication, no TLS.
"""
        return HttpReply(200, text.encode(), TEXT)


@asynccontextmanager
async def served(
    limits: NamedLimits, url: str, listening: socket.socket, hosts: frozenset[str] | None
) -> AsyncIterator[None]:
    """Answer on a socket until the block ends."""
    pages = UpPages(limits, url, hosts)
    door = HttpDoor(pages.handle, limits.clock, HttpSettings(body_bytes_max=BODY_BYTES_MAX))
    settings = ListenerSettings(
        connections_max=CONNECTIONS_MAX, connections_per_address_max=CONNECTIONS_MAX
    )
    listener = Listener([listening], {Language.HTTP1: door}, settings=settings)
    listener.start()
    try:
        yield
    finally:
        await asyncio.shield(listener.close(GRACE_S))


def decision_reply(decision: Decision) -> HttpReply:
    """A decision in HTTP: status and sentence are those of the reasons table."""
    reason = decision.reason
    waitable = decision.retry_after_us >= 0
    members = {
        "allowed": decision.allowed,
        "remaining": decision.remaining,
        "retry_after_us": decision.retry_after_us if waitable else None,
        "reset_after_us": decision.reset_after_us,
        "reason": None if reason is None else reason.name,
        "sentence": None if reason is None else reason.sentence,
        "rule_id": decision.rule_id,
    }
    if reason is None:
        return json_reply(members)
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if waitable:
        # Rounded up: who comes back in the second that is named is not too early.
        headers = ((b"retry-after", str(-(-decision.retry_after_us // 1_000_000)).encode()),)
    return json_reply(members, reason.http_status)._replace(headers=headers)


def state(limits: NamedLimits) -> dict[str, object]:
    """What the view shows, for programs."""
    snapshot = limits.snapshot()
    keys = limits.keys()
    return {
        "compiled": compiled(),
        "uptime_us": snapshot.uptime_us,
        "decisions_per_s": round(snapshot.per_s, 1),
        "admitted": snapshot.admitted,
        "refused": snapshot.refused,
        "reasons": snapshot.reasons,
        "rules": {
            rule.name: {
                "rate": limits.rules[rule.name].rate,
                "algorithm": limits.rules[rule.name].limit.algorithm.value,
                "admitted": rule.admitted,
                "refused": rule.refused,
                "per_s": round(rule.per_s, 1),
                "reasons": rule.reasons,
                "keys": keys[rule.name],
                "last_minute": {"admitted": rule.minute_admitted, "refused": rule.minute_refused},
            }
            for rule in snapshot.rules
        },
        "refused_most": [key._asdict() for key in snapshot.refused_keys],
        "decision_us": _latency(snapshot.decision),
        "answer_us": _latency(snapshot.answer),
        "keys": sum(keys.values()),
        "bad_requests": snapshot.bad_requests,
        "faults": snapshot.faults,
    }


def _latency(quantiles: Quantiles) -> dict[str, float | None]:
    return {"p50": quantiles.p50_us, "p99": quantiles.p99_us}


def _from_json(body: bytes) -> dict[str, object]:
    value = parse_json(body)
    if not isinstance(value, dict):
        raise BadValue("body", body, 'send an object, as {"key": "you", "rule": "api", "cost": 1}')
    return _fields(list(value.items()))


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name not in ("key", "rule", "cost"):
            raise BadValue("field", name, "there are key, rule and cost")
        if name in fields:
            raise BadValue(name, value, "give it once")
        fields[name] = value
    return fields


def _rule(value: object, rules: Mapping[str, object]) -> str:
    # A name and not a rate: what is counted is not for the network to say.
    if isinstance(value, str) and value in rules:
        return value
    if value is None and len(rules) == 1:
        return next(iter(rules))
    raise BadValue("rule", value, f"give one of {', '.join(rules)}")


def _key(value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= KEY_CHARS_MAX:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadValue("key", value, "give valid Unicode, without lone surrogates") from None
        return value
    raise BadValue("key", value, f"give text of 1 to {KEY_CHARS_MAX} characters: who or what asks")


def _cost(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COST_MAX:
        return value
    raise BadValue("cost", value, "give a whole number from 0 to 2^53")
