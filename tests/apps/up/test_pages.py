from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from sluicegate.apps.up.named_limits import NamedLimits
from sluicegate.apps.up.pages import UpPages, decision_reply
from sluicegate.apps.up.settings import parse_rules
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import DEADLINE, RATE_LIMITED, SHED
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.kernels.verdict import NEVER
from sluicegate.testing import HandClock

URL = "http://127.0.0.1:7000"
HOST = (b"host", b"127.0.0.1:7000")
JSON = (b"content-type", b"application/json")


PEER = PeerInfo("127.0.0.1", 1, Address("127.0.0.1", 7000))


class Answer(NamedTuple):
    status: int
    content_type: bytes
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks the handler without a socket."""

    def __init__(self, *rules: str) -> None:
        self.clock = HandClock()
        self.limits = NamedLimits(
            parse_rules(rules or ("api = 2/min", "batch = 10/min")), self.clock
        )
        self.pages = UpPages(self.limits, URL, frozenset({"127.0.0.1:7000"}))

    def __call__(
        self,
        path: str,
        query: bytes = b"",
        *headers: tuple[bytes, bytes],
        method: str = "GET",
        body: bytes = b"",
    ) -> Answer:
        sent = [HOST, *headers] if all(name != b"host" for name, _ in headers) else [*headers]
        answer = self.pages.handle(HttpRequest(method, path, query, sent, PEER))
        reply = answer if isinstance(answer, HttpReply) else answer(body)
        assert isinstance(reply, HttpReply)
        return Answer(reply.status, reply.content_type, dict(reply.headers), reply.body)

    def post(self, body: bytes) -> Answer:
        return self("/v1/check", b"", JSON, method="POST", body=body)


def test_an_admitted_check_is_the_decision_as_json() -> None:
    answer = Client()("/v1/check", b"key=ann&rule=api")
    assert answer.status == 200
    assert answer.json == {
        "allowed": True,
        "remaining": 1,
        "retry_after_us": 0,
        "reset_after_us": 30_000_000,
        "reason": None,
        "sentence": None,
        "rule_id": "api",
    }
    assert b"retry-after" not in answer.headers


def test_a_refusal_has_the_words_and_codes_of_the_reasons_table() -> None:
    ask = Client()
    for _ in range(2):
        ask("/v1/check", b"key=ann&rule=api")
    ask.clock.advance(ms=500)
    answer = ask("/v1/check", b"key=ann&rule=api")
    assert answer.status == RATE_LIMITED.http_status
    assert answer.json["reason"] == RATE_LIMITED.name
    assert answer.json["sentence"] == RATE_LIMITED.sentence
    assert answer.json["retry_after_us"] == 29_500_000
    assert answer.headers[b"retry-after"] == b"30"


@pytest.mark.parametrize(
    ("retry_us", "header"),
    [(1, b"1"), (1_000_000, b"1"), (1_000_001, b"2"), (0, b"0"), (NEVER, None)],
)
def test_retry_after_is_rounded_up_and_absent_where_no_wait_helps(
    retry_us: int, header: bytes | None
) -> None:
    reply = decision_reply(Decision(False, 0, retry_us, 0, SHED, "api"))
    assert dict(reply.headers).get(b"retry-after") == header
    assert (json.loads(reply.body)["retry_after_us"] is None) == (header is None)


def test_the_status_is_that_of_the_reason() -> None:
    assert decision_reply(Decision(False, 0, NEVER, 0, DEADLINE, "api")).status == 504
    assert decision_reply(Decision(False, 0, 1, 0, SHED, "api")).status == 503


def test_a_check_may_be_posted() -> None:
    ask = Client()
    assert ask.post(b'{"key": "ann", "rule": "batch", "cost": 4}').json["remaining"] == 6
    assert ask.post(b'{"key": "ann", "rule": "batch"}').json["remaining"] == 5
    assert ask.post(b'{"key": "ann", "rule": "batch", "cost": 0}').json["remaining"] == 5


def test_where_there_is_one_rule_it_need_not_be_named() -> None:
    assert Client("only = 5/s")("/v1/check", b"key=ann").json["rule_id"] == "only"


def test_a_key_may_be_in_any_script() -> None:
    answer = Client()("/v1/check", b"rule=api&key=%E6%B0%B4%E9%96%80")
    assert answer.status == 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (b"", "rule"),
        (b"key=a", "rule"),
        (b"key=a&rule=none", "rule"),
        (b"key=a&rule=10/s", "rule"),
        (b"rule=api", "key"),
        (b"rule=api&key=", "key"),
        (b"rule=api&key=" + b"x" * 513, "key"),
        (b"rule=api&key=a&key=b", "key"),
        (b"rule=api&key=a&cost=-1", "cost"),
        (b"rule=api&key=a&cost=1.5", "cost"),
        (b"rule=api&key=a&cost=nan", "cost"),
        (b"rule=api&key=a&cost=", "cost"),
        (b"rule=api&key=a&cost=9007199254740993", "cost"),
        (b"rule=api&key=a&cost=" + b"9" * 10_000, "cost"),
        (b"rule=api&key=a&price=1", "query"),
        (b"rule=api&key=%ff", "query"),
        (b"rule=api&key=\xff", "query"),
        (b"&".join(b"x=1" for _ in range(100)), "query"),
    ],
)
def test_a_query_that_cannot_be_used_names_field_value_and_remedy(query: bytes, field: str) -> None:
    ask = Client()
    answer = ask("/v1/check", query)
    assert answer.status == 400
    assert answer.content_type == b"application/problem+json"
    assert answer.json["field"] == field
    assert answer.json["remedy"]
    assert len(answer.body) < 1_000
    counts = ask.limits.snapshot()
    assert (counts.bad_requests, counts.admitted + counts.refused, counts.faults) == (1, 0, 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"[" * 60_000, "body"),
        (b"\xff\xfe", "body"),
        (b'{"key": 5, "rule": "api"}', "key"),
        (b'{"key": "\\ud800", "rule": "api"}', "key"),
        (b'{"key": {"a": 1}, "rule": "api"}', "key"),
        (b'{"key": "a", "rule": ["api"]}', "rule"),
        (b'{"key": "a", "rule": null}', "rule"),
        (b'{"key": "a", "rule": "api", "cost": true}', "cost"),
        (b'{"key": "a", "rule": "api", "cost": "1"}', "cost"),
        (b'{"key": "a", "rule": "api", "cost": 1.0}', "cost"),
        (b'{"key": "a", "rule": "api", "cost": NaN}', "body"),
        (b'{"key": "a", "rule": "api", "cost": 1e999}', "cost"),
        (b'{"key": "a", "key": "b", "rule": "api"}', "body"),
        (b'{"key": "a", "rule": "api", "\\u0000": 1}', "field"),
        (b'{"key": "a", "rule": "api", "cost": ' + b"9" * 5_000 + b"}", "body"),
    ],
)
def test_a_body_that_cannot_be_used_names_its_field(body: bytes, field: str) -> None:
    answer = Client().post(body)
    assert (answer.status, answer.json["field"]) == (400, field)
    assert len(answer.body) < 1_000


def test_a_post_is_json_so_that_a_form_of_another_site_is_none() -> None:
    form = (b"content-type", b"application/x-www-form-urlencoded")
    answer = Client()("/v1/check", b"", form, method="POST", body=b"key=a&rule=api")
    assert answer.status == 415


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"host", b"evil.example:7000")], 421),
        ([(b"host", b"127.0.0.1:7001")], 421),
        ([(b"host", b"")], 421),
        ([(b"origin", b"http://evil.example")], 403),
        ([(b"origin", b"null")], 403),
        ([(b"origin", b"https://127.0.0.1:7000")], 403),
        ([(b"sec-fetch-site", b"cross-site")], 403),
        ([(b"sec-fetch-site", b"same-site")], 403),
        ([(b"origin", b"http://127.0.0.1:7000")], 200),
        ([(b"sec-fetch-site", b"same-origin")], 200),
        ([(b"sec-fetch-site", b"none")], 200),
        ([(b"host", b"127.0.0.1:7000")], 200),
    ],
)
def test_only_who_names_us_and_comes_from_us_is_served(
    headers: list[tuple[bytes, bytes]], status: int
) -> None:
    assert Client()("/v1/check", b"rule=api&key=a", *headers).status == status


def test_addresses_and_methods_that_are_not_there_say_which_are() -> None:
    ask = Client()
    missing = ask("/v1/chekc")
    assert missing.status == 404
    wrong = ask("/v1/check", method="DELETE")
    assert (wrong.status, wrong.headers[b"allow"]) == (405, b"GET, HEAD, OPTIONS, POST")


def test_the_front_page_tells_a_person_what_to_ask() -> None:
    text = Client()("/").body.decode()
    assert f"curl -i '{URL}/v1/check?rule=api&key=you'" in text
    assert "10/min" in text
    assert Client()("/healthz").status == 204


def test_the_state_is_what_the_view_shows() -> None:
    ask = Client()
    for _ in range(3):
        ask("/v1/check", b"rule=api&key=ann")
    ask.clock.advance(s=1)
    state = ask("/v1/state").json
    assert (state["admitted"], state["refused"], state["keys"]) == (2, 1, 1)
    assert state["rules"]["api"]["last_minute"]["admitted"][-1] == 2
    assert state["refused_most"] == [{"rule": "api", "key": "ann", "share": 1.0}]
    assert state["decision_us"]["p50"] == 0


def test_a_bug_of_ours_is_an_answer_and_is_counted() -> None:
    ask = Client()
    ask.limits._limiter = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):  # which the door turns into an answer without a word of it
        ask("/v1/check", b"rule=api&key=ann")
    assert ask.limits.counts.faults == 1
