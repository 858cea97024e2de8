"""What callers say about their own work is believed up to what they may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.request import Request
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
TABLE = CriticalitySettings(callers={"checkout": CRITICAL, "reports": BULK})


def settled(clamp: CriticalityClamp, request: Request) -> Criticality:
    assert clamp.admit(request, 0) is NOTHING_HELD
    return request.criticality


def test_a_caller_gets_what_it_claims_up_to_what_the_table_says() -> None:
    clamp = CriticalityClamp(TABLE)
    assert settled(clamp, Request("k", caller="checkout", criticality=CRITICAL)) == CRITICAL
    assert settled(clamp, Request("k", caller="checkout", criticality=BULK)) == BULK
    assert settled(clamp, Request("k", caller="reports", criticality=CRITICAL)) == BULK
    assert settled(clamp, Request("k", caller="reports", criticality=BEST_EFFORT)) == BULK
    assert clamp.stats() == (4, 2, 0, 1, 0, 0, 3)


def test_a_stranger_is_never_critical() -> None:
    clamp = CriticalityClamp(TABLE)
    assert settled(clamp, Request("k", caller="who", criticality=CRITICAL)) == DEGRADED
    assert settled(clamp, Request("k", criticality=CRITICAL)) == DEGRADED
    assert settled(clamp, Request("k", criticality=BULK)) == BULK


def test_the_text_that_a_door_has_left_is_the_claim() -> None:
    clamp = CriticalityClamp(TABLE)
    for text, expected in [
        ("critical", CRITICAL),
        (" Best-Effort ", BEST_EFFORT),
        ("best_effort", BEST_EFFORT),
        ("BULK", BULK),
    ]:
        request = Request("k", caller="checkout", attributes={"criticality": text})
        assert settled(clamp, request) == expected


@pytest.mark.parametrize("text", ["", "0", "CRITICAL!", "urgent", "critical" * 100_000])
def test_an_unknown_claim_is_the_default_and_never_critical(text: str) -> None:
    clamp = CriticalityClamp(
        CriticalitySettings(callers={"checkout": CRITICAL}, default=BEST_EFFORT)
    )
    request = Request(
        "k", caller="checkout", criticality=CRITICAL, attributes={"criticality": text}
    )
    assert settled(clamp, request) == BEST_EFFORT
    assert clamp.stats().unknown == 1


def test_other_attributes_claim_nothing_and_the_name_can_be_chosen() -> None:
    clamp = CriticalityClamp(CriticalitySettings(attribute="x-class"))
    assert settled(clamp, Request("k", attributes={"criticality": "bulk"})) == DEGRADED
    assert settled(clamp, Request("k", attributes={"x-class": "bulk"})) == BULK


def test_the_longest_text_that_is_read_is_a_class_with_spaces_around() -> None:
    clamp = CriticalityClamp(TABLE)
    assert settled(clamp, Request("k", attributes={"criticality": "bulk".center(32)})) == BULK
    assert settled(clamp, Request("k", attributes={"criticality": "bulk".center(33)})) == DEGRADED


def test_changing_the_mapping_afterwards_changes_nothing() -> None:
    callers = {"checkout": DEGRADED}
    clamp = CriticalityClamp(CriticalitySettings(callers=callers))
    callers["checkout"] = CRITICAL
    assert settled(clamp, Request("k", caller="checkout", criticality=CRITICAL)) == DEGRADED


@given(
    highest=st.sampled_from(Criticality),
    claim=st.sampled_from(Criticality),
    text=st.none() | st.text(max_size=12) | st.sampled_from([one.name for one in Criticality]),
    known=st.booleans(),
)
def test_nobody_ever_gets_more_than_allowed_and_settling_twice_is_settling_once(
    highest: Criticality, claim: Criticality, text: str | None, known: bool
) -> None:
    clamp = CriticalityClamp(CriticalitySettings(callers={"a": highest}))
    attributes = {} if text is None else {"criticality": text}
    request = Request("k", caller="a" if known else "b", criticality=claim, attributes=attributes)
    first = settled(clamp, request)
    assert first >= (highest if known else DEGRADED)
    assert settled(clamp, request) == first
    assert clamp.stats().settled == 2
    assert clamp.admit(request, 0).end(Outcome.IGNORE, 0, spent=False)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"default": CRITICAL}, "criticality.default"),
        ({"strangers": CRITICAL}, "criticality.strangers"),
        ({"callers_max": 0}, "criticality.callers_max"),
        ({"callers": {"a": BULK, "b": BULK}, "callers_max": 1}, "criticality.callers"),
        ({"callers": {"a": 0}}, "criticality.callers[a]"),
    ],
)
def test_bad_settings_name_their_field(settings: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as wrong:
        CriticalitySettings(**settings)  # type: ignore[arg-type]
    assert wrong.value.field == field
