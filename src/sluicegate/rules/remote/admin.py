"""Desk: a `contracts.rule_desk.RuleDesk` that asks a server.

    desk = RemoteDesk("https://rules.example:7443", token=token, ca="ca.pem")
    desk.propose({"shop.yaml": text}, base="live", message="More for the shop")

The server knows who asks by the token or the certificate; `by` is not sent. Each change carries a
key of its own, so one whose answer was lost on the way is asked again and done once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final, final
from urllib.parse import quote, urlencode

from sluicegate.contracts.access import Identity
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule_admin import LIVE_REVISION, Answer
from sluicegate.rules.remote.exchange import Answered, Broken, Exchange, answer_of
from sluicegate.rules.remote.server import ANSWER_BYTES_MAX, TIMEOUT_S_DEFAULT, place_of
from sluicegate.system import SystemChance, SystemClock

ATTEMPTS_MAX: Final = 3
WAIT_S_MAX: Final = 20.0  # of one question; a longer wait asks several
WAIT_S_MIN: Final = 0.2  # from one question of a wait to the next

_ROOT: Final = "/v1/rules"
_NOTHING: Final[Mapping[str, object]] = {}
# Nobody in particular: the server knows who we are.
WHOEVER: Final = Identity("", ())
# The answer was too slow for the server's own bound; what was asked goes on.
_TOO_SLOW: Final = 504


@final
class RemoteRuleAdmin:
    """A rulebook elsewhere. From any thread; nothing stays open between calls."""

    __slots__ = ("_chance", "_clock", "_exchange", "_place", "url")

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
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        """`ca` signs the server, `cert` and `key` are ours; PEM files. `timeout_s` is a call's.

        `insecure` sends the token to other machines without TLS.
        """
        self._place = place_of(
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
        self._clock = SystemClock() if clock is None else clock
        self._chance = SystemChance() if chance is None else chance
        self._exchange = Exchange(self._place, self._clock)

    def __repr__(self) -> str:
        return f"<RemoteDesk {self.url}>"

    # Read.

    def rules(self, at: str = LIVE_REVISION, *, by: Identity = WHOEVER) -> Answer:
        """The commit, its version, and its files."""
        return self._get("", {"at": at})

    def file(self, name: str, at: str = LIVE_REVISION, *, by: Identity = WHOEVER) -> Answer:
        """One file, as text."""
        return self._get(f"/files/{_part('name', name)}", {"at": at})

    def diff(self, before: str, after: str, *, by: Identity = WHOEVER) -> Answer:
        """What changes from one revision to the other."""
        return self._get("/diff", {"from": before, "to": after})

    def proposals(
        self, state: str = "", *, count_max: int = 100, by: Identity = WHOEVER
    ) -> Sequence[Answer]:
        """The latest proposals, newest first."""
        wanted: dict[str, object] = {"count": count_max}
        if state:
            wanted["state"] = state
        return self._several("proposals", self._get("/proposals", wanted))

    def proposal(self, id: str, *, by: Identity = WHOEVER) -> Answer:  # noqa: A002 - the contract's
        """One proposal."""
        return self._get(f"/proposals/{_part('id', id)}")

    def versions(self, *, count_max: int = 100, by: Identity = WHOEVER) -> Sequence[Answer]:
        """The latest editions, newest first."""
        return self._several("versions", self._get("/versions", {"count": count_max}))

    def status(self, *, by: Identity = WHOEVER) -> Answer:
        """What the fleet is ordered to run, and what each node has reported."""
        return self._get("/status")

    def wait(self, version: int, *, nodes: int, timeout_s: float, by: Identity = WHOEVER) -> Answer:
        """The status once that many nodes run the version, or once the time is over."""
        until_us = self._clock.now_us() + int(timeout_s * 1_000_000)
        left_s = max(timeout_s, 0.0)
        while True:
            asked_us = self._clock.now_us()
            ask_s = min(left_s, WAIT_S_MAX)
            answer = self._get(
                "/wait",
                {"version": version, "nodes": nodes, "timeout_s": f"{ask_s:.3f}"},
                longer_s=ask_s,
            )
            now_us = self._clock.now_us()
            left_s = (until_us - now_us) / 1_000_000
            if answer.get("reached") or left_s <= 0:
                return answer
            # A server that answers sooner than it was asked to is not asked without a pause.
            rest_s = WAIT_S_MIN - (now_us - asked_us) / 1_000_000
            if rest_s > 0:
                Event().wait(min(rest_s, left_s))

    def audit(self, *, count_max: int = 100, by: Identity = WHOEVER) -> Sequence[Answer]:
        """The latest calls that changed something or were refused, newest first."""
        return self._several("audit", self._get("/audit", {"count": count_max}))

    def report(self, id: str, *, by: Identity = WHOEVER) -> Answer:  # noqa: A002 - likewise
        """All figures behind a proposal's verdict."""
        return self._get(f"/report/{_part('id', id)}")

    # Change.

    def propose(
        self,
        changes: Mapping[str, str | None],
        *,
        base: str,
        message: str,
        reason: str = "",
        by: Identity = WHOEVER,
    ) -> Answer:
        """Propose files with these texts; None takes a file out."""
        return self._post(
            "/proposals", base=base, changes=dict(changes), message=message, reason=reason
        )

    def judge(self, id: str, *, by: Identity = WHOEVER) -> Answer:  # noqa: A002 - likewise
        """Try a proposal (again)."""
        return self._step(id, "judge")

    def approve(
        self,
        id: str,  # noqa: A002 - likewise
        *,
        override: str = "",
        by: Identity = WHOEVER,
    ) -> Answer:
        """Approve."""
        return self._step(id, "approve", override=override)

    def reject(self, id: str, *, reason: str, by: Identity = WHOEVER) -> Answer:  # noqa: A002
        """Turn down."""
        return self._step(id, "reject", reason=reason)

    def publish(self, id: str, *, by: Identity = WHOEVER) -> Answer:  # noqa: A002 - likewise
        """Make an approved proposal live."""
        return self._step(id, "publish")

    def canary(
        self,
        id: str,  # noqa: A002 - likewise
        *,
        share: int,
        kind: str,
        by: Identity = WHOEVER,
    ) -> Answer:
        """Let it be in force for a share of callers or nodes (of 10,000)."""
        return self._step(id, "canary", share=share, kind=kind)

    def roll_back(self, to: str, *, reason: str, by: Identity = WHOEVER) -> Answer:
        """Make the rules of an earlier revision live again, as a new version."""
        return self._post("/rollback", to=to, reason=reason)

    def pin(self, node: str, version: int, *, reason: str, by: Identity = WHOEVER) -> Answer:
        """Have one node run that version; 0 lets it go."""
        return self._post("/pins", node=node, version=version, reason=reason)

    # Inside.

    def _get(
        self, path: str, query: Mapping[str, object] = _NOTHING, *, longer_s: float = 0.0
    ) -> Answer:
        asked = f"?{urlencode(query, errors='replace')}" if query else ""
        return self._ask("GET", f"{path}{asked}", None, {}, longer_s)

    def _step(self, proposal: str, step: str, **fields: object) -> Answer:
        return self._post(f"/proposals/{_part('id', proposal)}/{step}", **fields)

    def _post(self, path: str, **fields: object) -> Answer:
        body = json.dumps(fields).encode("ascii")
        headers = {"Content-Type": "application/json", "Idempotency-Key": self._key()}
        return self._ask("POST", path, body, headers, 0.0)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        longer_s: float,
    ) -> Answer:
        """Ask, and again where the answer was lost: reads change nothing, changes have a key."""
        timeout_s = self._place.timeout_s + longer_s
        until_us = self._clock.now_us() + int(timeout_s * 1_000_000)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            left_s = (until_us - self._clock.now_us()) / 1_000_000
            last = attempt == ATTEMPTS_MAX or left_s <= 0
            try:
                answered = self._exchange.ask(method, _ROOT + path, body, headers, left_s)
            except Broken:
                if last or self._clock.now_us() >= until_us:
                    raise
            else:
                if last or answered.status != _TOO_SLOW:
                    return self._answer(answered)
        raise AssertionError("the last attempt answers or raises")

    def _answer(self, answered: Answered) -> Answer:
        return answer_of(answered, self._exchange.what)

    def _several(self, name: str, answer: Answer) -> Sequence[Answer]:
        found: Any = answer.get(name)
        if not isinstance(found, list):
            raise Unavailable(self._exchange.what, f"its answer has no list of {name}")
        return found

    def _key(self) -> str:
        return "".join(f"{int(self._chance.draw() * 2**48):012x}" for _ in range(3))


def _part(field: str, value: str) -> str:
    """A part of a path."""
    if not value:
        raise BadValue(field, value, "say which")
    return quote(value, safe="", errors="replace")
