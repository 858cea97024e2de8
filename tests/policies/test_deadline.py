"""Work that cannot be done in time is not begun."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.deadline import (
    OTHERS,
    Deadline,
    DeadlinePermit,
    DeadlineSettings,
)
from sluicegate.policies.keyed_table import FORGET_US
from tests.prove.seeds import first

S = 1_000_000
MS = 1_000
NOW = 1_000 * S


def admitted(deadline: Deadline, request: Request, now_us: int = NOW) -> DeadlinePermit:
    permit = deadline.admit(request, now_us)
    assert isinstance(permit, DeadlinePermit)
    return permit


def refused(deadline: Deadline, request: Request, now_us: int = NOW) -> Decision:
    decision = deadline.admit(request, now_us)
    assert isinstance(decision, Decision)
    assert not decision.allowed
    assert decision.reason is DEADLINE
    assert decision.rule_id == "deadline"
    assert decision.retry_after_us == NEVER
    return decision


def taught(service_us: int = 50 * MS, operation: str = "", **settings: object) -> Deadline:
    """One that has seen 200 pieces of work take so long a second ago; nobody is let in to probe."""
    deadline = Deadline(DeadlineSettings(**{"probe_us": 60 * S, **settings}))  # type: ignore[arg-type]
    teach(deadline, service_us, operation)
    return deadline


def teach(deadline: Deadline, service_us: int, operation: str = "", count: int = 200) -> None:
    for _ in range(count):
        request = Request("k", deadline_us=NOW + 100 * S, operation=operation)
        permit = admitted(deadline, request, NOW - S)
        request.measured = Measured(service_us)
        permit.end(Outcome.SUCCESS, NOW - S)


def test_what_has_expired_is_refused_to_the_microsecond() -> None:
    deadline = Deadline()
    refused(deadline, Request("k", deadline_us=NOW))
    refused(deadline, Request("k", deadline_us=NOW - 5 * S))
    admitted(deadline, Request("k", deadline_us=NOW + 1))
    assert deadline.stats().expired == 2
    assert deadline.stats().admitted == 1


def test_less_time_than_the_p99_of_the_work_is_too_little() -> None:
    deadline = taught(50 * MS)
    need_us = deadline.need_us("", NOW)
    assert need_us == pytest.approx(50 * MS, rel=0.011)
    refused(deadline, Request("k", deadline_us=NOW + need_us - 1))
    admitted(deadline, Request("k", deadline_us=NOW + need_us))
    assert deadline.stats().too_late == 1
    assert deadline.stats().expired == 0


def test_the_seeds_form_refuses_only_what_has_expired() -> None:
    deadline = taught(50 * MS, slack=False)
    admitted(deadline, Request("k", deadline_us=NOW + 1))
    refused(deadline, Request("k", deadline_us=NOW))


def test_each_operation_class_has_its_own_time() -> None:
    deadline = taught(500 * MS, "scan")
    teach(deadline, 5 * MS, "get")
    admitted(deadline, Request("k", deadline_us=NOW + 20 * MS, operation="get"))
    refused(deadline, Request("k", deadline_us=NOW + 20 * MS, operation="scan"))
    admitted(deadline, Request("k", deadline_us=NOW + 20 * MS, operation="put"))


def test_classes_beyond_the_bound_share_one() -> None:
    deadline = Deadline(DeadlineSettings(operations_max=2))
    for number in range(50):
        admitted(deadline, Request("k", operation=f"op{number}"))
    assert [name for name, _ in deadline.stats().needs_us] == ["op0", "op1", OTHERS]


def test_of_classes_that_share_one_only_what_has_expired_is_refused() -> None:
    """Else one that is slow takes its time for that of one that is quick."""
    deadline = taught(500 * MS, "scan", operations_max=1)
    refused(deadline, Request("k", deadline_us=NOW + 20 * MS, operation="scan"))
    teach(deadline, 500 * MS, "report")
    admitted(deadline, Request("k", deadline_us=NOW + 20 * MS, operation="get"))
    refused(deadline, Request("k", deadline_us=NOW, operation="get"))


def test_names_that_somebody_invents_make_room_for_what_is_asked_for() -> None:
    """Else whatever comes after them has no class of its own for ever."""
    deadline = Deadline(DeadlineSettings(operations_max=2))

    def names(*asked: str, at_us: int) -> list[str]:
        for name in asked:
            admitted(deadline, Request("k", operation=name), at_us)
        return [name for name, _ in deadline.stats().needs_us]

    assert names("/wp-login.php", "/get", "/report", at_us=NOW)[2:] == [OTHERS]
    assert names("/get", "/report", at_us=NOW + FORGET_US - 1)[2:] == [OTHERS]
    assert names("/report", at_us=NOW + FORGET_US + S) == ["/get", "/report"]


def test_what_comes_without_a_deadline_gets_one_from_its_arrival() -> None:
    deadline = Deadline(DeadlineSettings(default_us=2 * S))
    request = Request("k", arrived_us=NOW - S)
    admitted(deadline, request)
    assert request.deadline_us == NOW + S
    request = Request("k")
    admitted(deadline, request)
    assert request.deadline_us == NOW + 2 * S
    request = Request("k", arrived_us=NOW + 9 * S)  # a clock that went back
    admitted(deadline, request)
    assert request.deadline_us == NOW + 2 * S
    refused(deadline, Request("k", arrived_us=NOW - 2 * S))


def test_a_deadline_that_is_too_far_off_is_brought_near() -> None:
    deadline = Deadline(DeadlineSettings(default_us=S, furthest_us=60 * S))
    request = Request("k", deadline_us=NOW + 3_600 * S)
    admitted(deadline, request)
    assert request.deadline_us == NOW + 60 * S


def test_too_few_samples_ask_for_the_assumed_time() -> None:
    deadline = Deadline(DeadlineSettings(assumed_us=30 * MS, refresh_us=0, probe_us=60 * S))
    teach(deadline, 50 * MS, count=199)
    refused(deadline, Request("k", deadline_us=NOW + 30 * MS - 1))
    admitted(deadline, Request("k", deadline_us=NOW + 30 * MS))
    teach(deadline, 50 * MS, count=1)
    refused(deadline, Request("k", deadline_us=NOW + 30 * MS))


def test_cache_hits_cancelled_and_unwound_work_teach_nothing() -> None:
    deadline = taught(50 * MS, refresh_us=0)
    for measured, outcome, spent in [
        (Measured(10 * S, from_cache=True), Outcome.SUCCESS, True),
        (Measured(10 * S), Outcome.IGNORE, True),
        (Measured(10 * S), Outcome.SUCCESS, False),
        (None, Outcome.SUCCESS, True),
    ]:
        for _ in range(50):
            request = Request("k", deadline_us=NOW + 100 * S)
            permit = admitted(deadline, request)
            request.measured = measured
            permit.end(outcome, NOW, spent=spent)
    assert deadline.need_us("", NOW) == pytest.approx(50 * MS, rel=0.011)


def cut(deadline: Deadline, granted_us: int, now_us: int, count: int = 1) -> None:
    """Work that was let in and given up at its deadline."""
    for _ in range(count):
        request = Request("k", deadline_us=now_us)
        permit = admitted(deadline, request, now_us - granted_us)
        request.measured = Measured(granted_us)
        permit.end(Outcome.DROPPED, now_us)


def test_work_that_was_cut_off_teaches_nothing_while_other_work_is_done() -> None:
    deadline = taught(50 * MS, refresh_us=0)
    for _ in range(50):
        cut(deadline, 2 * S, NOW, count=9)
        teach(deadline, 50 * MS, count=1)
    assert deadline.need_us("", NOW) == pytest.approx(50 * MS, rel=0.011)


def test_where_all_is_cut_off_who_has_no_more_time_is_refused_until_one_is_done() -> None:
    deadline = taught(50 * MS, refresh_us=0)
    cut(deadline, 100 * MS, NOW, count=9)
    admitted(deadline, Request("k", deadline_us=NOW + 100 * MS))
    cut(deadline, 100 * MS, NOW)
    refused(deadline, Request("k", deadline_us=NOW + 100 * MS))
    longer = Request("k", deadline_us=NOW + 101 * MS)
    permit = admitted(deadline, longer)
    longer.measured = Measured(50 * MS)
    permit.end(Outcome.SUCCESS, NOW)
    admitted(deadline, Request("k", deadline_us=NOW + 100 * MS))


def test_what_fails_before_its_time_is_up_teaches_nothing() -> None:
    deadline = taught(50 * MS, refresh_us=0)
    for _ in range(300):
        request = Request("k", deadline_us=NOW + S)
        permit = admitted(deadline, request)
        request.measured = Measured(1)
        permit.end(Outcome.DROPPED, NOW)
    assert deadline.need_us("", NOW) == pytest.approx(50 * MS, rel=0.011)


def test_a_probe_keeps_a_class_from_being_refused_for_ever() -> None:
    deadline = taught(50 * MS, probe_us=100 * MS)
    admitted(deadline, Request("k", deadline_us=NOW + S))
    let_in = []
    for ms in range(0, 350, 10):
        now_us = NOW + ms * MS
        request = Request("k", deadline_us=now_us + 20 * MS)
        if not isinstance(deadline.admit(request, now_us), Decision):
            let_in.append(ms)
    assert let_in == [100, 200, 300]
    assert deadline.stats().probes == 3
    assert deadline.stats().too_late == 32


def test_a_probe_that_is_refused_further_on_makes_room_for_the_next() -> None:
    deadline = taught(50 * MS, probe_us=100 * MS)
    for _ in range(3):
        permit = admitted(deadline, Request("k", deadline_us=NOW + 20 * MS))
        permit.end(Outcome.IGNORE, NOW, spent=False)
    admitted(deadline, Request("k", deadline_us=NOW + 20 * MS))
    refused(deadline, Request("k", deadline_us=NOW + 20 * MS))


def let_in(deadline: Deadline, now_us: int, count: int = 100) -> list[DeadlinePermit]:
    """As many as it takes of so many with too little time."""
    asked = [
        deadline.admit(Request("k", deadline_us=now_us + 20 * MS), now_us) for _ in range(count)
    ]
    return [one for one in asked if not isinstance(one, Decision)]


def test_while_probes_are_in_time_more_are_let_in_and_half_as_many_once_one_is_not() -> None:
    deadline = taught(50 * MS, probe_us=100 * MS)
    admitted(deadline, Request("k", deadline_us=NOW + S))
    now_us = NOW + 100 * MS
    rounds = []
    for _ in range(8):
        permits = let_in(deadline, now_us)
        rounds.append(len(permits))
        now_us += 10 * MS
        for permit in permits:
            permit.end(Outcome.SUCCESS, now_us)
    assert rounds[:3] == [1, 1, 2]
    assert sorted(rounds) == rounds
    most = rounds[-1]
    assert most > 5
    now_us += 200 * MS
    permits = let_in(deadline, now_us)
    for permit in permits:  # all of one round are too late: that says one thing, not many
        permit.end(Outcome.DROPPED, now_us + 30 * MS)
    again = len(let_in(deadline, now_us + 30 * MS))
    assert most // 2 - 1 <= again <= most // 2 + 1


@pytest.mark.parametrize("ending", [(Outcome.IGNORE, True), (Outcome.SUCCESS, False)])
def test_a_probe_that_was_cancelled_or_refused_further_on_lets_no_more_in(
    ending: tuple[Outcome, bool],
) -> None:
    deadline = taught(50 * MS, probe_us=100 * MS)
    admitted(deadline, Request("k", deadline_us=NOW + S))
    now_us = NOW + 100 * MS
    for _ in range(5):
        [permit, *others] = let_in(deadline, now_us)
        assert not others
        permit.end(ending[0], now_us, spent=ending[1])
        now_us += 100 * MS


def test_who_never_has_time_enough_is_let_in_no_oftener_for_a_lucky_one() -> None:
    """Work of 1 to 20 ms with 5 ms to go: one in four is done, and few are begun in vain."""
    deadline = taught(10 * MS, probe_us=100 * MS, quantile=0.5)
    admitted(deadline, Request("k", deadline_us=NOW + S))
    begun = 0
    for ms in range(100, 10_100):
        now_us = NOW + ms * MS
        permit = deadline.admit(Request("k", deadline_us=now_us + 5 * MS), now_us)
        if isinstance(permit, Decision):
            continue
        begun += 1
        took_us = (begun * 7 % 20 + 1) * MS
        outcome = Outcome.SUCCESS if took_us <= 5 * MS else Outcome.DROPPED
        permit.end(outcome, now_us + min(took_us, 5 * MS))
    assert begun <= 160  # in ten seconds: 100 without a lucky one


def test_what_has_expired_is_never_let_in_to_probe() -> None:
    deadline = taught(50 * MS, probe_us=0)
    for _ in range(10):
        refused(deadline, Request("k", deadline_us=NOW))


def test_what_was_learned_is_forgotten_with_its_window() -> None:
    deadline = taught(50 * MS, windows=2, window_us=S)
    refused(deadline, Request("k", deadline_us=NOW + 20 * MS))
    admitted(deadline, Request("k", deadline_us=NOW + 3 * S + 20 * MS), NOW + 3 * S)


def test_the_p99_is_taken_once_each_refresh_and_after_the_clock_went_back() -> None:
    deadline = Deadline(DeadlineSettings(refresh_us=S))
    assert deadline.need_us("", NOW - S) == 0
    teach(deadline, 50 * MS)
    assert deadline.need_us("", NOW - 1) == 0
    assert deadline.need_us("", NOW) > 0
    late = Deadline(DeadlineSettings(refresh_us=S))
    assert late.need_us("", NOW + 500 * S) == 0
    teach(late, 50 * MS)
    assert late.need_us("", NOW) > 0


def test_wasted_work_is_counted_when_it_ends_too_late() -> None:
    deadline = Deadline()
    for ends_us in (NOW + 10 * MS, NOW + 10 * MS + 1):
        request = Request("k", deadline_us=NOW + 10 * MS)
        permit = admitted(deadline, request)
        request.measured = Measured(7 * MS)
        permit.end(Outcome.SUCCESS, ends_us)
    stats = deadline.stats()
    assert (stats.wasted, stats.wasted_us, stats.worked_us) == (1, 7 * MS, 14 * MS)


def test_what_was_unwound_is_not_wasted() -> None:
    deadline = Deadline()
    permit = admitted(deadline, Request("k", deadline_us=NOW + 1))
    assert permit.end(Outcome.IGNORE, NOW + S, spent=False)
    assert deadline.stats().wasted == 0
    assert deadline.stats().unwound == 1


def test_a_look_refuses_later_on_without_holding_anything() -> None:
    deadline = taught(50 * MS)
    request = Request("k", deadline_us=NOW + 60 * MS)
    assert deadline.need_us("", NOW) > 0
    before = deadline.stats()
    assert deadline.look(request, NOW) is None
    assert deadline.stats() == before
    late = deadline.look(request, NOW + 11 * MS)
    assert late is not None
    assert late.reason is DEADLINE
    assert deadline.look(request, NOW + 60 * MS) is not None
    assert deadline.look(Request("k"), NOW) is None
    stats = deadline.stats()
    assert (stats.too_late, stats.expired, stats.admitted) == (1, 1, before.admitted)


def goodput(slack: bool, load: float) -> float:
    """One server of 10 ms a request, in the order of arrival; all are given 500 ms."""
    deadline = Deadline(DeadlineSettings(slack=slack, samples_min=50, refresh_us=100 * MS))
    chance = random.Random(7)
    line: deque[Request] = deque()
    now_us = free_us = NOW
    good = 0
    while now_us < NOW + 40 * S:
        now_us += round(chance.expovariate(load / (10 * MS)))
        line.append(Request("k", arrived_us=now_us, deadline_us=now_us + 500 * MS))
        while line and free_us <= now_us:
            request = line.popleft()
            began_us = max(free_us, request.arrived_us)
            permit = deadline.admit(request, began_us)
            if isinstance(permit, Decision):
                continue
            service_us = round(chance.expovariate(1 / (10 * MS)))
            free_us = began_us + service_us
            request.measured = Measured(service_us)
            permit.end(Outcome.SUCCESS, free_us)
            good += request.remaining_us(free_us) != 0
    return good * 10 * MS / (40 * S)


def test_refusing_only_the_expired_saves_little_and_the_slack_rule_saves_nearly_all() -> None:
    # Both judge on leaving the line. At twice the load the first does nearly everything too late.
    assert goodput(slack=False, load=2.0) < 0.6
    assert goodput(slack=True, load=2.0) > 0.9


SLOTS = 8
PLACES = 64


def refused_after_a_stall(
    stall_us: int, per_s: int, granted_us: Sequence[int], seed: int, *, exponential: bool
) -> float:
    """The share of what comes from a second after a stall on that is refused as too late.

    Eight slots of 10 ms behind 64 places, which could do 800 a second. In the stall nothing ends
    and nothing is given back; what is cut off at its deadline leaves its place, and its slot when
    the work is over.
    """
    deadline = Deadline()
    chance = random.Random(seed)
    begin_us, end_us = NOW + 20 * S, NOW + 20 * S + stall_us
    ends: list[tuple[int, int, Outcome, DeadlinePermit, Request]] = []  # of permits
    slots = [0] * SLOTS
    now_us = NOW
    came = refusals = number = 0
    while now_us < end_us + 10 * S:
        now_us += round(chance.expovariate(per_s / S))
        while ends and ends[0][0] <= now_us:
            at_us, _, outcome, permit, request = heappop(ends)
            request.measured = Measured(at_us - request.arrived_us)
            permit.end(outcome, at_us)
        number += 1
        limit_us = now_us + chance.choice(granted_us)
        request = Request("k", arrived_us=now_us, deadline_us=limit_us)
        later = now_us >= end_us + S
        came += later
        got = deadline.admit(request, now_us)
        if isinstance(got, Decision):
            refusals += later
        elif len(ends) >= PLACES:
            got.end(Outcome.IGNORE, now_us, spent=False)
        else:
            free_us = heappop(slots)
            began_us = max(free_us, now_us)
            took_us = round(chance.expovariate(1 / (10 * MS))) if exponential else 10 * MS
            done_us = began_us + took_us
            if began_us < end_us and done_us > begin_us:
                done_us += end_us - max(begin_us, began_us)
            heappush(slots, done_us)
            outcome = Outcome.SUCCESS if done_us <= limit_us else Outcome.DROPPED
            heappush(ends, (min(done_us, limit_us), number, outcome, got, request))
    return refusals / came


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("granted_ms", [(100,), (500,), (100, 500), (100, 10_000)])
@pytest.mark.parametrize("per_s", first(2, [20, 600, 100]))
@pytest.mark.parametrize("stall_ms", [300, 2_000, 5_000])
def test_a_stall_locks_nobody_out_for_longer_than_a_second(
    stall_ms: int, per_s: int, granted_ms: tuple[int, ...], exponential: bool
) -> None:
    granted_us = [one * MS for one in granted_ms]
    share = refused_after_a_stall(stall_ms * MS, per_s, granted_us, 1, exponential=exponential)
    assert share < 0.05


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["admit", "end", "unwind", "end again"]),
            st.integers(0, 9),
            st.integers(-1, 200),
            st.sampled_from(Outcome),
        ),
        max_size=60,
    )
)
def test_a_permit_ends_once_in_any_order_and_nothing_leaks(
    steps: list[tuple[str, int, int, Outcome]],
) -> None:
    deadline = Deadline()
    under_way: list[DeadlinePermit] = []
    over: list[DeadlinePermit] = []
    for what, place, left_ms, outcome in steps:
        if what == "admit":
            got = deadline.admit(Request("k", deadline_us=NOW + left_ms * MS), NOW)
            if isinstance(got, DeadlinePermit):
                under_way.append(got)
        elif what == "end again":
            if over:
                before = deadline.stats()
                assert not over[place % len(over)].end(outcome, NOW)
                assert deadline.stats() == before
        elif under_way:
            permit = under_way.pop(place % len(under_way))
            assert permit.end(outcome, NOW, spent=what == "end")
            over.append(permit)
        assert deadline.stats().under_way == len(under_way)
    for permit in under_way:
        assert permit.end(Outcome.SUCCESS, NOW)
    assert deadline.stats().under_way == 0


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"default_us": 0}, "deadline.default_us"),
        ({"default_us": 10, "furthest_us": 9}, "deadline.default_us"),
        ({"quantile": 1.1}, "deadline.quantile"),
        ({"quantile": float("nan")}, "deadline.quantile"),
        ({"samples_min": 0}, "deadline.samples_min"),
        ({"probe_us": -1}, "deadline.probe_us"),
        ({"cuts_min": 0}, "deadline.cuts_min"),
        ({"recent_us": 0}, "deadline.recent_us"),
        ({"operations_max": 0}, "deadline.operations_max"),
        ({"windows": 0}, "deadline.windows"),
    ],
)
def test_bad_settings_name_their_field(settings: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as wrong:
        DeadlineSettings(**settings)  # type: ignore[arg-type]
    assert wrong.value.field == field


def test_a_slow_shard_refuses_for_itself_alone_where_that_is_set() -> None:
    """Ten shards, one of them fifty times slower: the others' deadlines are long enough."""
    for by_shard, served in ((True, True), (False, False)):
        deadline = Deadline(DeadlineSettings(by_shard=by_shard, samples_min=10, probe_us=60 * S))
        now_us = NOW
        for number in range(400):
            shard = number % 10
            request = Request("k", operation="get", shard=f"s{shard}")
            permit = deadline.admit(request, now_us)
            assert not isinstance(permit, Decision)
            request.measured = Measured(500 * MS if shard == 3 else 10 * MS)
            now_us += MS
            permit.end(Outcome.SUCCESS, now_us)
        now_us += 10_000 * MS // 10
        quick = Request("k", operation="get", shard="s1", deadline_us=now_us + 100 * MS)
        assert isinstance(deadline.admit(quick, now_us), Decision) is not served
        slow = Request("k", operation="get", shard="s3", deadline_us=now_us + 100 * MS)
        assert isinstance(deadline.admit(slow, now_us), Decision)
