"""The HTTP door of `sluicegate up`: a bare ASGI application. It translates and does not decide.

    GET, POST /v1/check    200 or the status of the refusal's reason, and the decision as JSON
    GET       /v1/state    what the view shows, as JSON
    GET       /healthz     204
    GET       /            what this is, for people

What cannot be understood is answered with problem+json (RFC 9457) that names the field, the value
and the remedy. A browser may not be used against us: a request must name one of our own hosts, and
one that says it comes from another site is refused, unless `hosts` is None.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, final
from urllib.parse import parse_qsl

from sluicegate.apps.up.counts import KEY_CHARS_MAX, Quantiles
from sluicegate.apps.up.named_limits import NamedLimits, compiled
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.limiter import COST_MAX
from sluicegate.wire.json_objects import parse_json

BODY_BYTES_MAX: Final = 64 * 1024
BODY_S_MAX: Final = 5.0
FIELDS_MAX: Final = 8

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"
TEXT: Final = b"text/plain; charset=utf-8"


class UpReply(NamedTuple):
    """What goes back, whole."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: Headers = ()


class UpProblem(Exception):  # noqa: N818 - it is the RFC's word
    """A request that is not for us to answer; `more` is shown beside the sentence."""

    def __init__(
        self, status: int, title: str, detail: str, headers: Headers = (), **more: str
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers
        self.shown = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        self.shown.update(more)


class _GoneError(Exception):
    """The client left before it had asked; nobody waits for a reply."""


@final
class UpPages:
    """The application; `url` is our own address, `hosts` the Host headers that may name it."""

    def __init__(self, gate: NamedLimits, url: str, hosts: frozenset[str] | None) -> None:
        self._gate = gate
        self._url = url
        self._hosts = hosts
        self._routes: dict[str, dict[str, Callable[[Scope, Receive], Awaitable[UpReply]]]] = {
            "/": {"GET": self._about, "HEAD": self._about},
            "/healthz": {"GET": self._health, "HEAD": self._health},
            "/v1/check": {"GET": self._check, "POST": self._check},
            "/v1/state": {"GET": self._state, "HEAD": self._state},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            reply = await self._reply(scope, receive)
        except _GoneError:
            return
        except UpProblem as problem:
            if problem.status < 500:
                self._gate.counts.bad_requests += 1
            body = _json(problem.shown)
            reply = UpReply(problem.status, body, PROBLEM, problem.headers)
        except Exception:  # the door stays open, and the view says that we have a bug
            self._gate.counts.faults += 1
            shown = {"type": "about:blank", "title": "Our own fault", "status": 500}
            reply = UpReply(500, _json(shown), PROBLEM)
        headers = [
            (b"content-type", reply.content_type),
            (b"content-length", str(len(reply.body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *reply.headers,
        ]
        if reply.status == 204:
            del headers[:2]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Scope, receive: Receive) -> UpReply:
        headers = dict(scope["headers"])
        if self._hosts is not None:
            _check_site(headers, self._hosts)
        methods = self._routes.get(scope["path"])
        if methods is None:
            raise UpProblem(404, "No such address", f"there are {', '.join(self._routes)}")
        answer = methods.get(scope["method"])
        if answer is None:
            allowed = ", ".join(methods)
            raise UpProblem(
                405, "No such method here", f"use {allowed}", ((b"allow", allowed.encode()),)
            )
        return await answer(scope, receive)

    async def _check(self, scope: Scope, receive: Receive) -> UpReply:
        posted = None
        if scope["method"] == "POST":
            posted = await _read_body(dict(scope["headers"]), receive)
        clock = self._gate.clock
        asked_us = clock.now_us()
        try:
            fields = _from_query(scope["query_string"]) if posted is None else _from_json(posted)
            decision = self._gate.check(
                _rule(fields.get("rule"), self._gate.rules),
                _key(fields.get("key")),
                _cost(fields.get("cost", 1)),
            )
        except BadValue as error:
            # The message names the value, and has shortened it.
            raise UpProblem(
                400,
                "Bad value",
                str(error),
                field=error.field,
                value=_shown(error.value),
                remedy=error.remedy,
            ) from None
        reply = decision_reply(decision)
        now_us = clock.now_us()
        self._gate.counts.answered(now_us - asked_us, now_us)
        return reply

    async def _state(self, _scope: Scope, _receive: Receive) -> UpReply:
        return UpReply(200, _json(state(self._gate)))

    async def _health(self, _scope: Scope, _receive: Receive) -> UpReply:
        return UpReply(204, b"")

    async def _about(self, _scope: Scope, _receive: Receive) -> UpReply:
        rules = "\n".join(f"  {rule.name:<12} {rule.rate}" for rule in self._gate.rules.values())
        name = next(iter(self._gate.rules))
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
        return UpReply(200, text.encode(), TEXT)


def decision_reply(decision: Decision) -> UpReply:
    """A decision in HTTP: status and sentence are those of the reasons table."""
    reason = decision.reason
    waitable = decision.retry_after_us >= 0
    shown = {
        "allowed": decision.allowed,
        "remaining": decision.remaining,
        "retry_after_us": decision.retry_after_us if waitable else None,
        "reset_after_us": decision.reset_after_us,
        "reason": None if reason is None else reason.name,
        "sentence": None if reason is None else reason.sentence,
        "rule_id": decision.rule_id,
    }
    if reason is None:
        return UpReply(200, _json(shown))
    headers: Headers = ()
    if waitable:
        # Rounded up: who comes back in the second that is named is not too early.
        headers = ((b"retry-after", str(-(-decision.retry_after_us // 1_000_000)).encode()),)
    return UpReply(reason.http_status, _json(shown), JSON, headers)


def state(gate: NamedLimits) -> dict[str, object]:
    """What the view shows, for programs."""
    seen = gate.snapshot()
    keys = gate.keys()
    return {
        "compiled": compiled(),
        "uptime_us": seen.uptime_us,
        "decisions_per_s": round(seen.per_s, 1),
        "admitted": seen.admitted,
        "refused": seen.refused,
        "reasons": seen.reasons,
        "rules": {
            rule.name: {
                "rate": gate.rules[rule.name].rate,
                "algorithm": gate.rules[rule.name].limit.algorithm.value,
                "admitted": rule.admitted,
                "refused": rule.refused,
                "per_s": round(rule.per_s, 1),
                "reasons": rule.reasons,
                "keys": keys[rule.name],
                "last_minute": {"admitted": rule.minute_admitted, "refused": rule.minute_refused},
            }
            for rule in seen.rules
        },
        "refused_most": [key._asdict() for key in seen.refused_keys],
        "decision_us": _latency(seen.decision),
        "answer_us": _latency(seen.answer),
        "keys": sum(keys.values()),
        "bad_requests": seen.bad_requests,
        "faults": seen.faults,
    }


def _latency(quantiles: Quantiles) -> dict[str, float | None]:
    return {"p50": quantiles.p50_us, "p99": quantiles.p99_us}


def _check_site(headers: Mapping[bytes, bytes], hosts: frozenset[str]) -> None:
    """Refuse what a page of another site, or a name rebound to our address, has sent."""
    host = headers.get(b"host", b"").decode("latin-1").lower()
    if host not in hosts:
        raise UpProblem(
            421, "Not our name", f"the Host header must be one of {', '.join(sorted(hosts))}"
        )
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    site = headers.get(b"sec-fetch-site", b"none")
    if (origin and origin.removeprefix("http://") not in hosts) or site not in (
        b"none",
        b"same-origin",
    ):
        raise UpProblem(
            403, "Another site", "requests that a page of another site sends are refused"
        )


async def _read_body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != JSON:
        raise UpProblem(415, "Not JSON", "send it with Content-Type: application/json")
    too_large = UpProblem(413, "Too large", f"a body may have {BODY_BYTES_MAX:,} bytes")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 15 or int(length) > BODY_BYTES_MAX:
        raise too_large
    body = b""
    more = True
    try:
        async with asyncio.timeout(BODY_S_MAX):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise _GoneError
                body += message.get("body", b"")
                if len(body) > BODY_BYTES_MAX:
                    raise too_large
                more = message.get("more_body", False)
    except TimeoutError:
        raise UpProblem(408, "Too slow", f"the body did not come within {BODY_S_MAX:g} s") from None
    return body


def _from_query(query: bytes) -> dict[str, object]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:
        raise BadValue("query", query, "write it as key=...&rule=...&cost=..., in UTF-8") from None
    fields = _fields(list(pairs))
    cost = fields.get("cost")
    if isinstance(cost, str) and re.fullmatch(r"[0-9]{1,16}", cost):
        fields["cost"] = int(cost)
    return fields


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


def _shown(value: object) -> str:
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
