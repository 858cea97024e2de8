"""What the server refuses is raised as what it was made from, whatever came over the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    Forbidden,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.doors.http.message import HttpReply
from sluicegate.doors.http.rules.problems import (
    FULL,
    OTHER_CALL,
    not_found,
    precondition_failed,
    rules_reply,
)
from sluicegate.rules.problems import PROBLEMS_MAX, BadRules, Problem
from sluicegate.rules.remote.exchange import ServerResponse, answer_of, error_of

TEXT = st.text(max_size=20)
PROBLEM = st.builds(
    Problem,
    TEXT,
    st.one_of(TEXT, st.integers(), st.booleans(), st.none()),
    TEXT,
    st.integers(0, 99),
)
ERRORS = st.one_of(
    st.builds(BadValue, TEXT, TEXT, TEXT),
    st.builds(Conflict, TEXT, TEXT),
    st.builds(Unavailable, TEXT, TEXT),
    st.builds(Forbidden, TEXT, TEXT),
    st.builds(BadRules, TEXT, st.lists(PROBLEM, min_size=1, max_size=5), st.integers(0, 9)),
)


def response(reply: HttpReply) -> ServerResponse:
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return ServerResponse(reply.status, headers, reply.body)


@given(ERRORS)
def test_an_error_comes_back_as_it_was(error: SluicegateError) -> None:
    back = error_of(response(rules_reply(error)), "the rulebook")
    assert type(back) is type(error)
    assert str(back) == str(error)
    if isinstance(error, BadRules):
        assert isinstance(back, BadRules)
        assert [vars(one) for one in back.problems] == [vars(one) for one in error.problems]
        assert (back.source, back.more) == (error.source, error.more)
    else:
        assert vars(back) == vars(error)


MEMBERS = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5)),
    lambda inner: st.dictionaries(
        st.sampled_from(("detail", "what", "seen", "field", "problems", "grant", "more", "line")),
        st.one_of(inner, st.lists(inner, max_size=2)),
    ),
    max_leaves=8,
)
BODY = st.one_of(st.binary(max_size=30), MEMBERS.map(lambda value: json.dumps(value).encode()))


@given(st.integers(100, 599), BODY)
def test_whatever_is_answered_is_an_object_or_an_error_on_purpose(status: int, body: bytes) -> None:
    what = ServerResponse(status, {}, body)
    if 200 <= status < 300 and _is_object(body):
        assert answer_of(what, "the rulebook") == json.loads(body)
    else:
        with pytest.raises(SluicegateError):
            answer_of(what, "the rulebook")


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (FULL, Unavailable, "the rulebook's door is unavailable: as many calls wait as may"),
        (OTHER_CALL, BadValue, "idempotency-key"),
        (precondition_failed("what is live", "abc"), Conflict, 'what is live was changed.*"abc"'),
        (not_found(BadValue("proposal", "p9", "look")), BadValue, "proposal: 'p9'.*look"),
        (rules_reply(SluicegateError("it is odd")), SluicegateError, "it is odd"),
        (rules_reply(Unauthenticated("send a token")), Unauthenticated, "send a token"),
    ],
)
def test_what_the_door_says_by_itself_is_understood(
    reply: HttpReply, kind: type[SluicegateError], words: str
) -> None:
    error = error_of(response(reply), "the rulebook")
    assert type(error) is kind
    with pytest.raises(kind, match=words):
        raise error


@pytest.mark.parametrize(
    ("status", "problem", "kind"),
    [
        (413, {"title": "Content Too Large", "detail": "longer than body_bytes_max"}, BadValue),
        (401, {"detail": "this token is nobody's"}, Unauthenticated),
        (403, {"detail": "the page of another site"}, Unavailable),
        (412, {"detail": "odd"}, Unavailable),
        (503, {"detail": "odd"}, Unavailable),
        (409, {}, SluicegateError),
        (422, {"problems": [3]}, BadRules),
        (422, {"problems": []}, Unavailable),
    ],
)
def test_what_says_less_is_told_all_the_same(
    status: int, problem: dict[str, Any], kind: type[SluicegateError]
) -> None:
    error = error_of(ServerResponse(status, {}, json.dumps(problem).encode()), "the rulebook")
    assert type(error) is kind
    assert problem.get("detail", "") in str(error)


def test_no_more_problems_are_taken_over_than_a_file_may_have() -> None:
    problem = {
        "problems": [{"field": "limit", "line": at} for at in range(90)],
        "file": "shop.yaml",
    }
    error = error_of(ServerResponse(422, {}, json.dumps(problem).encode()), "the rulebook")
    assert isinstance(error, BadRules)
    assert [one.line for one in error.problems] == list(range(PROBLEMS_MAX))


def test_what_would_be_right_is_told_before_what_is_wrong() -> None:
    body = b'{"detail": "nobody knows you", "remedy": "send a token"}'
    error = error_of(ServerResponse(401, {}, body), "the rulebook")
    assert isinstance(error, Unauthenticated)
    assert error.remedy == "send a token"
