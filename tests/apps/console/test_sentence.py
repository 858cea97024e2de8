"""The sentence at the top: what matters most, and nothing that is not so."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate.apps.console.picture import FleetPicture
from sluicegate.apps.console.sentence import Urgency, sentence_of
from tests.apps.console.states import (
    SECOND_US,
    START_US,
    account,
    dispatcher,
    done,
    limiter,
    looked,
    pictured,
    pubsub,
    slow_shard,
)

CALM_KV = (
    dispatcher(latency=done(CRITICAL=0, BULK=0)),
    dispatcher(1.0, latency=done(CRITICAL=100, BULK=100)),
)


def of(before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[str, str]:
    found = sentence_of(pictured(looked(before, after)))
    return found.urgency.value, found.words


def test_calm_says_how_much_is_served() -> None:
    assert of(*CALM_KV) == ("calm", "All is calm: 200/s admitted, none refused.")


def test_limits_of_callers_are_no_news() -> None:
    refused = {"refused": {"CRITICAL": {"quota_spent": 50}}, "refusals": {"quota_spent": 50}}
    after = dispatcher(1.0, latency=done(CRITICAL=100), **refused)
    urgency, words = of(dispatcher(latency=done(CRITICAL=0)), after)
    assert (urgency, words) == (
        "calm",
        "All is calm: 100/s admitted, 50/s refused as their limits say.",
    )


def test_a_caller_with_most_of_the_refusals_is_named() -> None:
    callers = [
        {"caller": "nightly", "mru": 0, "admitted": 10, "refused": 900},
        {"caller": "shop", "mru": 0, "admitted": 500, "refused": 1},
    ]
    before = [{**one, "admitted": 0, "refused": 0} for one in callers]
    urgency, words = of(dispatcher(callers=before), dispatcher(1.0, callers=callers))
    assert urgency == "defending"
    assert words.startswith("nightly asks for more than its quota: 900/s")


def test_what_limiters_do_not_enforce_is_said_first_whoever_stopped_it() -> None:
    opening = {
        "id": "a1", "rule": "play", "key": "*", "until_us": START_US + 60 * SECOND_US,
        "opened_at_us": START_US, "by": "ann", "why": "the rule is wrong",
    }  # fmt: skip
    state = {**limiter(1.0), "glass": {"openings": [opening]}}
    nodes = [looked(limiter(), state), looked(limiter(), state, "http://node:2")]
    said = sentence_of(pictured(*nodes))
    assert said.urgency is Urgency.ALARM
    assert said.words == (
        "Limits are not enforced everywhere: rule 'play' for every key, by ann (the rule is "
        "wrong); it ends by itself."
    )


def test_slow_shard_is_named_with_waiting_requests() -> None:
    slow = [slow_shard("3", 0.31, waiting=5)]
    urgency, words = of(CALM_KV[0], dispatcher(1.0, latency=done(CRITICAL=100), slow=slow))
    assert urgency == "defending"
    assert words == (
        "The backend is slow on shard 3: get takes 3.2 x its usual time, and 5 requests wait; "
        "CRITICAL is untouched."
    )


def test_an_account_over_its_limit_is_named_with_what_is_refused_of_it() -> None:
    def state(at_s: float, *, over: bool) -> dict[str, Any]:
        sent = {"attempted": round(at_s * 900), "admitted": round(at_s * 90)}
        bot = account("bot", 0.9 if over else 0.0, **sent)
        return pubsub(at_s, account("ann", attempted=9, admitted=9), bot, admitted=sent["admitted"])

    assert of(state(0.0, over=True), state(1.0, over=True)) == (
        "defending",
        "Account bot sends more than its limit of 100/s: 90.0% of its messages are refused.",
    )
    calm = "All is calm: messages of accounts are admitted at 90/s."
    assert of(state(0.0, over=False), state(1.0, over=False)) == ("calm", calm)


def test_who_is_not_ready_is_named_with_the_reason() -> None:
    state = {**limiter(1.0, CRITICAL={"allowed": 1}), "not_ready": "it reads its rules"}
    words = "http://node:1 is not ready: it reads its rules."
    assert of(limiter(), state) == ("defending", words)


def test_what_is_shed_is_told_with_whom_it_spares() -> None:
    after = dispatcher(
        1.0,
        latency=done(CRITICAL=100, BULK=100),
        refused={"BULK": {"queue_timeout": 300}},
        queue={"overloaded": True},
        stress={"queue_us": 12_000, "ratio": 1.0, "level": "calm", "why": []},
    )
    urgency, words = of(CALM_KV[0], after)
    assert urgency == "defending"
    assert words == (
        "There is more work than the engine can do (work waits 12.0 ms): of BULK 300/s are "
        "refused; CRITICAL is untouched."
    )


def test_critical_work_that_is_shed_is_an_alarm() -> None:
    after = dispatcher(
        1.0, latency=done(CRITICAL=90, BULK=9), refused={"CRITICAL": {"queue_full": 10}}
    )
    urgency, words = of(CALM_KV[0], after)
    assert (urgency, words) == ("alarm", "CRITICAL work is refused: 10/s, 10.0% of it.")


def test_a_limiter_that_sheds_says_by_which_signal() -> None:
    before = limiter(CRITICAL={"allowed": 0}, BULK={"allowed": 0})
    after = limiter(1.0, 0.93, CRITICAL={"allowed": 50}, BULK={"allowed": 10, "shed": 40})
    after["gate"]["shares"] = [0.0, 0.0, 0.0, 0.8]
    urgency, words = of(before, after)
    assert urgency == "defending"
    assert words.startswith("The limiter is at 93% of its cpu: of BULK 40/s are refused")


@pytest.mark.parametrize(
    ("board", "words"),
    [
        (
            {"engine_state": {"gone": True, "since_us": 1, "why": "disk full"}},
            "The engine of 1 dispatcher fails: disk full.",
        ),
        (
            {"store": {"gone": True, "since_us": 1, "why": "refused"}},
            "The store of quotas does not answer 1 dispatcher: each caller keeps its last share.",
        ),
    ],
)
def test_what_is_down_is_an_alarm(board: dict[str, Any], words: str) -> None:
    assert of(dispatcher(), dispatcher(1.0, **board)) == ("alarm", words)


def limiter_on_store(
    at_s: float, health: str = "down", evicted: int = 0, **counts: int
) -> dict[str, Any]:
    watch = {"health": health, "trip_us": 240_000, "evicted": evicted}
    return {**limiter(at_s, CRITICAL=counts), "store_watch": watch}


@pytest.mark.parametrize(
    ("health", "state"), [("down", "is down"), ("slow", "is slow (it answers in 240 ms)")]
)
def test_uncounted_decisions_are_first_and_tell_slow_from_down(health: str, state: str) -> None:
    after = limiter_on_store(1.0, health, allowed=60, degraded_allowed=20)
    gone = looked(None, None, "http://kv-2:7080")
    found = sentence_of(pictured(looked(limiter_on_store(0.0), after), gone))
    assert found.urgency is Urgency.ALARM
    assert found.words == (
        f"Limits are not enforced: 25.0% uncounted, 20/s; the store of counts {state}."
    )


def test_refusals_without_store_are_an_alarm_but_enforced() -> None:
    after = limiter_on_store(1.0, degraded_refused=20)
    urgency, words = of(limiter_on_store(0.0), after)
    assert urgency == "alarm"
    assert "20/s are decided by the failure policies" in words


def test_evicted_counters_are_an_alarm() -> None:
    urgency, words = of(limiter_on_store(0.0), limiter_on_store(1.0, evicted=30, allowed=60))
    assert urgency == "alarm"
    assert words.startswith("The store of counts drops counters, 30/s")


def test_uncounted_decisions_come_before_stopped_rules() -> None:
    opening = {
        "id": "a1", "rule": "play", "key": "*", "until_us": START_US + 60 * SECOND_US,
        "opened_at_us": START_US, "by": "ann", "why": "the rule is wrong",
    }  # fmt: skip
    after = limiter_on_store(1.0, degraded_allowed=20)
    state = {**after, "glass": {"openings": [opening]}}
    words = sentence_of(pictured(looked(limiter_on_store(0.0), state))).words
    assert words.startswith("Limits are not enforced: 100.0% uncounted, 20/s;")
    assert words.endswith(
        "An operator stopped rule 'play' for every key, by ann (the rule is "
        "wrong); it ends by itself."
    )


def test_who_does_not_answer_stands_above_all() -> None:
    gone = looked(None, None, "http://kv-2:7080")
    found = sentence_of(pictured(looked(*CALM_KV), gone))
    assert (found.urgency, found.page) == (Urgency.ALARM, "nodes")
    assert found.words == "1 of 2 services does not answer: http://kv-2:7080."
    alone = sentence_of(pictured(gone))
    assert alone.words == "http://kv-2:7080 does not answer: connection refused."
    two = sentence_of(pictured(gone, looked(None, None, "http://kv-3:7080")))
    assert two.words == "None of 2 services answers: connection refused."


def test_nobody_asks() -> None:
    assert sentence_of(FleetPicture(0)).words == "All is calm: nobody asks."
