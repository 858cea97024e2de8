from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import Claim, Limiter
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.contracts.reasons import (
    BULKHEAD_FULL,
    COST_ABOVE_LIMIT,
    RATE_LIMITED,
    STORE_UNAVAILABLE,
)
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.doors.headers import (
    INTEGER_MAX,
    Fields,
    LimitText,
    quote,
    response_headers,
    retry_after_s,
    unavailable,
)
from sluicegate.testing import HandClock

SECOND = 1_000_000
MINUTE = 60 * SECOND


def fields_of(style: str, judgement: Judgement) -> dict[str, str]:
    return fields_by(Fields(style), judgement)


def fields_by(writer: Fields, judgement: Judgement) -> dict[str, str]:
    raw = [(name.decode(), text.decode()) for name, text in writer.raw(judgement)]
    fields = writer.of(judgement)
    assert raw == fields, "the short way says what the long one does"
    assert len(dict(fields)) == len(fields), "no field is told twice"
    return dict(fields)


def judged(*counted: RuleDecision) -> Judgement:
    refused = [one.decision for one in counted if not one.decision.allowed]
    return Judgement((refused or [counted[0].decision])[0], counted)


def admitted(remaining: int, reset_us: int = MINUTE, name: str = "login") -> Decision:
    return Decision(True, remaining, 0, reset_us, None, name)


def refused(retry_us: int, name: str = "login", remaining: int = 0) -> Decision:
    return Decision(False, remaining, retry_us, MINUTE, RATE_LIMITED, name)


FIVE = Limit(5, period_us=MINUTE)


def test_the_ietf_fields_of_an_admitted_request() -> None:
    limiter = Limiter(rules={"login": "5/minute"}, clock=HandClock())
    limiter.judge(Claim("ann", "login"))
    assert fields_of("ietf", limiter.judge(Claim("ann", "login"))) == {
        "ratelimit-policy": '"login";q=5;w=60',
        "ratelimit": '"login";r=3;t=12',
    }


def test_t_is_the_time_until_one_more_unit_is_there_and_not_a_microsecond_less() -> None:
    clock = HandClock()
    limiter = Limiter(rules={"api": "7/minute"}, clock=clock)
    for _ in range(4):
        judgement = limiter.judge(Claim("ann", "api"))
    (one,) = judgement.decisions
    after_us = LimitText("api", one.limit).more_after_us(one.decision)
    assert 0 < after_us <= MINUTE // 7 + 2  # rounded up, twice at most
    clock.advance(us=after_us - 2)
    assert (
        limiter.peek("ann", rule="api").remaining == 3 - 1
    )  # a peek tells what a take would leave
    clock.advance(us=2)
    assert limiter.peek("ann", rule="api").remaining == 4 - 1


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_retry_after_never_comes_before_t(algorithm: Algorithm) -> None:
    clock = HandClock()
    limiter = Limiter(rules={"api": "3/minute"}, algorithm=algorithm, clock=clock)
    for step in range(40):
        clock.advance(s=1.7)
        fields = fields_of("ietf", limiter.judge(Claim("ann", "api")))
        t = int(re.search(r";t=(\d+)", fields["ratelimit"])[1])  # type: ignore[index]
        if "retry-after" in fields:
            assert int(fields["retry-after"]) >= t, step
        assert 0 < t <= 121


def test_a_refusal_says_when_to_come_back_in_whole_seconds_rounded_up() -> None:
    fields = fields_of("ietf", judged(RuleDecision("login", FIVE, refused(11_000_001))))
    assert fields["retry-after"] == "12"
    assert fields["ratelimit"] == '"login";r=0;t=12'


def test_an_admitted_request_is_never_told_to_come_back() -> None:
    for style in ("ietf", "legacy", "both", "none"):
        assert "retry-after" not in fields_of(
            style, judged(RuleDecision("login", FIVE, admitted(0)))
        )


def test_a_refusal_that_no_wait_will_turn_has_no_retry_after() -> None:
    never = Decision(False, 5, -1, 0, COST_ABOVE_LIMIT, "login")
    fields = fields_of("ietf", judged(RuleDecision("login", FIVE, never)))
    assert "retry-after" not in fields
    assert fields["ratelimit"] == '"login";r=5'
    # The reason alone is enough, whatever number stands beside it.
    assert retry_after_s(Decision(False, 5, 7 * SECOND, 0, COST_ABOVE_LIMIT, "login")) == 0


def test_a_refusal_without_a_number_is_a_second() -> None:
    assert retry_after_s(Decision(False, 0, 0, 0, BULKHEAD_FULL, "x")) == 1
    assert fields_of("ietf", unavailable()) == {
        "x-ratelimit-error": "store_unavailable",
        "retry-after": "1",
    }


def test_several_limits_are_a_list_and_no_two_items_share_a_name() -> None:
    limiter = Limiter(rules={"api": "10/s; 1000/hour", "all": "5/minute"}, clock=HandClock())
    fields = fields_of("ietf", limiter.judge(Claim("ann", "api"), Claim("*", "all")))
    assert fields["ratelimit-policy"] == (
        '"api: 10/second";q=10;w=1, "api: 1000/hour";q=1000;w=3600, "all";q=5;w=60'
    )
    assert fields["ratelimit"] == (
        '"api: 10/second";r=9;t=1, "api: 1000/hour";r=999;t=4, "all";r=4;t=12'
    )
    twice = judged(
        RuleDecision("api", FIVE, admitted(4)),
        RuleDecision("api", Limit(9, period_us=SECOND), admitted(8)),
        RuleDecision("api", FIVE, admitted(3)),
    )
    fields = fields_of("ietf", twice)
    assert fields["ratelimit-policy"] == '"api";q=5;w=60, "api #2";q=9;w=1, "api #3";q=5;w=60'
    assert fields["ratelimit"].startswith('"api";r=4;')
    assert '"api #2";r=8;' in fields["ratelimit"]


def test_two_limits_that_take_turns_under_one_name_are_not_mixed_up() -> None:
    writer = Fields("ietf")
    for _ in range(2):
        for limit, policy in ((FIVE, '"a";q=5;w=60'), (Limit(9, period_us=SECOND), '"a";q=9;w=1')):
            judgement = judged(RuleDecision("a", limit, admitted(4)))
            assert writer.raw(judgement)[0] == (b"ratelimit-policy", policy.encode())
            assert fields_by(writer, judgement)["ratelimit-policy"] == policy


@pytest.mark.parametrize(
    ("limit", "policy"),
    [
        (Limit(10, period_us=500_000), '"x";q=10'),  # the draft knows no half seconds
        (Limit(10, period_us=1_500_000), '"x";q=10'),
        (Limit(10, period_us=3_600 * SECOND), '"x";q=10;w=3600'),
        (Limit(10, period_us=SECOND, burst=20), '"x";q=10;w=1;sluicegate-burst=20'),
        (
            Limit(1 << 53, period_us=SECOND),
            f'"x";q={INTEGER_MAX};w=1;sluicegate-burst={INTEGER_MAX}',
        ),
    ],
)
def test_the_policy_says_what_the_draft_can_say(limit: Limit, policy: str) -> None:
    expected = policy if limit.count < 1 << 53 else f'"x";q={INTEGER_MAX};w=1'
    assert (
        fields_of("ietf", judged(RuleDecision("x", limit, admitted(1))))["ratelimit-policy"]
        == expected
    )


def test_numbers_stay_within_what_a_structured_field_holds() -> None:
    huge = fields_of("ietf", judged(RuleDecision("x", FIVE, admitted(1 << 53, 0))))
    assert huge["ratelimit"] == f'"x";r={INTEGER_MAX}'
    debt = fields_of("ietf", judged(RuleDecision("x", FIVE, admitted(-3, MINUTE))))
    assert debt["ratelimit"].startswith('"x";r=0;t=')


def test_a_burst_is_counted_into_t() -> None:
    clock = HandClock()
    limiter = Limiter(rules={"b": "10/s burst 20"}, clock=clock)
    judgement = limiter.judge(Claim("ann", "b", 15))
    words = LimitText("b", judgement.decisions[0].limit)
    assert words.more_after_us(judgement.decisions[0].decision) == 100_000
    assert fields_of("ietf", judgement)["ratelimit"] == '"b";r=5;t=1'


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("login", '"login"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("caf\u00e9", '"caf%C3%A9"'),
        ("a\r\nx: y", '"a%0D%0Ax: y"'),
        ("\x7f", '"%7F"'),
        ("\ud800", '"%ED%A0%80"'),
        ("", '""'),
    ],
)
def test_a_name_becomes_a_structured_string(name: str, quoted: str) -> None:
    assert quote(name) == quoted


# RFC 9651: a string is printable ASCII, in which only quotes and backslashes are escaped.
SF_STRING = re.compile(r'"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"')


@given(st.text())
def test_no_name_can_break_out_of_its_string(name: str) -> None:
    assert SF_STRING.fullmatch(quote(name))


@given(
    st.integers(1, 1 << 53),
    st.integers(1, 1 << 53),
    st.integers(-5, 1 << 53),
    st.integers(-1, 1 << 53),
    st.sampled_from(list(Algorithm)),
    st.booleans(),
)
def test_every_field_is_well_formed_whatever_the_numbers_are(
    count: int, period_us: int, left: int, after_us: int, algorithm: Algorithm, allowed: bool
) -> None:
    reason = None if allowed else RATE_LIMITED
    decision = Decision(allowed, left, 0 if allowed else after_us, max(after_us, 0), reason, "x")
    limit = Limit(count, period_us=period_us, algorithm=algorithm)
    fields = fields_of("both", judged(RuleDecision("x", limit, decision)))
    assert re.fullmatch(r'"x";q=\d{1,15}(;w=[1-9]\d{0,14})?', fields["ratelimit-policy"])
    assert re.fullmatch(r'"x";r=\d{1,15}(;t=[1-9]\d{0,14})?', fields["ratelimit"])
    assert int(fields["x-ratelimit-remaining"]) >= 0
    assert int(fields["x-ratelimit-reset"]) >= 0
    assert re.fullmatch(r"[1-9]\d*", fields.get("retry-after", "1"))


def test_the_older_fields_tell_of_the_limit_that_binds() -> None:
    wide, tight = Limit(1_000, period_us=3_600 * SECOND), Limit(5, period_us=MINUTE)
    both = judged(
        RuleDecision("w", wide, admitted(2)), RuleDecision("t", tight, admitted(3, 7 * SECOND))
    )
    # The judgement's own decision is the binding one, even if another has less left.
    assert fields_of("legacy", Judgement(both.decisions[1].decision, both.decisions)) == {
        "x-ratelimit-limit": "5",
        "x-ratelimit-remaining": "3",
        "x-ratelimit-reset": "7",
    }
    elsewhere = admitted(0)
    assert fields_of("legacy", Judgement(elsewhere, both.decisions))["x-ratelimit-limit"] == "1000"
    refusal = Judgement(
        refused(SECOND),
        (RuleDecision("w", wide, admitted(0)), RuleDecision("t", tight, refused(SECOND))),
    )
    fields = fields_of("legacy", refusal)
    assert fields["x-ratelimit-limit"] == "5"
    assert fields["retry-after"] == "1"
    assert "ratelimit" not in fields


def test_both_styles_stand_together_and_none_leaves_only_what_http_says() -> None:
    judgement = judged(RuleDecision("login", FIVE, refused(SECOND)))
    assert set(fields_of("both", judgement)) == {
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
    }
    assert fields_of("none", judgement) == {"retry-after": "1"}


def test_a_rule_that_is_only_tried_out_is_not_told() -> None:
    trial = Decision(True, 0, SECOND, MINUTE, RATE_LIMITED, "trial").with_marks(shadow=True)
    for style in ("ietf", "legacy", "both"):
        assert fields_of(style, judged(RuleDecision("trial", FIVE, trial))) == {}
    beside = judged(RuleDecision("login", FIVE, admitted(3)), RuleDecision("trial", FIVE, trial))
    fields = fields_of("both", beside)
    assert fields["ratelimit-policy"] == '"login";q=5;w=60'
    assert fields["ratelimit"].startswith('"login";r=3')
    assert fields["x-ratelimit-remaining"] == "3"


def test_a_decision_without_its_store_says_so_and_tells_no_count() -> None:
    away = admitted(0, 0).with_marks(degraded=True)
    fields = fields_of("both", judged(RuleDecision("login", FIVE, away)))
    assert fields == {
        "ratelimit-policy": '"login";q=5;w=60',
        "x-ratelimit-error": "store_unavailable",
    }
    half = judged(RuleDecision("a", FIVE, admitted(3)), RuleDecision("b", FIVE, away))
    fields = fields_of("ietf", half)
    assert fields["x-ratelimit-error"] == "store_unavailable"
    assert '"b"' in fields["ratelimit-policy"]
    assert '"b"' not in fields["ratelimit"]
    assert fields_of("none", half) == {}


def test_a_closed_rule_without_its_store_is_a_refusal_with_all_marks() -> None:
    closed = Decision(False, 0, 0, 0, STORE_UNAVAILABLE, "login").with_marks(degraded=True)
    fields = fields_of("ietf", judged(RuleDecision("login", FIVE, closed)))
    assert fields["retry-after"] == "1"
    assert fields["x-ratelimit-error"] == "store_unavailable"


def test_the_texts_that_are_kept_are_bounded() -> None:
    fields = Fields("ietf", limits_kept=10)
    for n in range(100):
        one = RuleDecision(f"rule {n}", Limit(n + 1, period_us=SECOND), admitted(1))
        assert f"q={n + 1};" in dict(fields.of(judged(one)))["ratelimit-policy"]
        assert len(fields._words) <= 11


def test_an_unknown_style_is_told_at_once() -> None:
    with pytest.raises(BadValue, match="ietf, legacy, both, none"):
        Fields("rfc")


def test_response_headers_with_wrong_arguments_raise_bad_value() -> None:
    """A style as the second argument raised a TypeError of an inner function."""
    decision = Limiter(rules={"login": "1/minute"}).take("ann", rule="login")
    with pytest.raises(BadValue, match='style="legacy"'):
        response_headers(decision, "legacy")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="take"):
        response_headers("legacy")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="one of ietf"):
        response_headers(decision, style="old")


def test_response_headers_of_a_decision_are_public() -> None:
    limiter = Limiter(rules={"login": "1/minute"}, clock=HandClock())
    limit = limiter.limits_of("login")[0]
    assert response_headers(limiter.take("ann", rule="login"), limit) == {
        "ratelimit-policy": '"login";q=1;w=60',
        "ratelimit": '"login";r=0;t=60',
    }
    refused = limiter.take("ann", rule="login")
    assert response_headers(refused) == {"retry-after": "60"}
    assert response_headers(refused, limit, style="legacy")["x-ratelimit-remaining"] == "0"
    never = limiter.take("ann", 2, "login")
    assert response_headers(never) == {}
    assert never.retry_after_s is None
