"""What would have happened, where arithmetic says it: one worker, even pace, constant service."""

from __future__ import annotations

from array import array

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import Exponential
from sluicegate.lab.retries import NAIVE, Retries
from sluicegate.lab.what_if.outcomes import GAVE_UP, GOOD, REFUSED, TURNED_AWAY, OutcomeCounts
from sluicegate.lab.what_if.plan import WHOLE_US, BackendSpec
from sluicegate.lab.what_if.runs import POLICIES, run_rulebooks
from sluicegate.shadow.report.report import as_json
from sluicegate.shadow.traffic import CapturedTraffic
from tests.lab.what_if_world import (
    MS,
    NONE,
    book,
    every,
    fixed,
    plan,
    report,
    results,
    station,
    traffic_of,
)
from tests.shadow.replay.captures import captured, check, limit, mesh, vips

# 200 a second for ten seconds, where 100 a second can be served.
DOUBLE = every(2_000, 5)
NINETY = book("ninety", fixed(90))


def ends(
    counts: OutcomeCounts, of: Criticality = Criticality.DEGRADED
) -> tuple[int, int, int, int]:
    """Good, gave up, turned away, refused."""
    return tuple(counts.count(of, how) for how in (GOOD, GAVE_UP, TURNED_AWAY, REFUSED))  # type: ignore[return-value]


def test_without_rules_only_those_are_answered_in_time_for_whom_patience_suffices() -> None:
    (only,) = results(DOUBLE, [NONE], plan(timeout_ms=500))
    # The n-th comes at 5n ms and is answered at 10(n + 1) ms, so after 5n + 10 ms: until n is 98.
    assert ends(only.counts) == (99, 1_901, 0, 0)
    assert only.counts.utilization() == 1.0
    assert only.counts.useful() == pytest.approx(99 * 10 / (1_999 * 5))
    assert only.counts.queue_peak == 1_000  # half of them have begun when the last one comes
    (patient,) = results(DOUBLE, [NONE], plan(timeout_ms=1_010))
    assert ends(patient.counts)[0] == 201


def test_a_rule_below_capacity_has_everybody_answered_whom_it_lets_in() -> None:
    (only,) = results(DOUBLE, [NINETY], plan(timeout_ms=500))
    assert ends(only.counts) == (900, 0, 0, 1_100)
    # The n-th of a second is answered after 5n + 10 ms, and the last of 90 is n = 89.
    waits = only.counts.waits[Criticality.DEGRADED]
    assert waits.quantile(1.0) == pytest.approx(455 * MS, rel=1e-3)
    assert waits.quantile(0.99) == pytest.approx(455 * MS, rel=1e-3)
    assert waits.quantile(0.5) == pytest.approx((5 * 44 + 10) * MS, rel=1e-3)
    assert only.counts.utilization() == pytest.approx(900 * 10 / 9_995)
    assert only.counts.useful() == only.counts.utilization()
    assert only.counts.by_rule == {"at-most-90": 1_100}


def test_a_rule_that_spaces_requests_leaves_nobody_waiting() -> None:
    spaced = book("spaced", limit("gcra", 1, 1, algorithm="gcra"))
    (only,) = results(DOUBLE, [spaced], plan())
    assert ends(only.counts) == (10, 0, 0, 1_990)
    assert only.counts.waits[Criticality.DEGRADED].quantile(1.0) == 10 * MS
    assert only.counts.queue_peak == 0


def test_the_report_says_goodput_a_second_and_the_sentence_who_is_better() -> None:
    answer = report(DOUBLE, [NONE, NINETY])
    none, ninety = answer["rulebooks"]
    assert (none["goodput_per_s"], ninety["goodput_per_s"]) == (
        pytest.approx(99 / 9.995, rel=1e-5),
        pytest.approx(900 / 9.995, rel=1e-5),
    )
    assert none["wait_p99_us"] == pytest.approx(500 * MS, rel=1e-3)
    assert answer["capture"]["load"] == pytest.approx(2, rel=1e-3)
    assert answer["sentence"] == (
        "ninety serves DEGRADED best: 45.00% in time (p99 454.9 ms), against 4.95% with none; "
        "no other class is answered less, though 55.00% of all are refused, and 0.00% with none."
    )


def test_whoever_is_answered_at_the_very_end_of_its_patience_is_in_time() -> None:
    two = captured([(0, check("ann")), (0, check("ann"))])
    for timeout_ms, good in ((20, 2), (19.999, 1)):
        for how in (
            plan(timeout_ms=timeout_ms),
            plan(timeout_ms=timeout_ms, retries=Retries(attempts=1)),
        ):
            (only,) = results(two, [NONE], how)
            assert ends(only.counts)[0] == good


def test_more_workers_for_the_same_capacity_are_each_slower() -> None:
    (only,) = results(every(100, 10), [NONE], plan(station(workers=4)))
    assert ends(only.counts) == (100, 0, 0, 0)
    assert only.counts.waits[Criticality.DEGRADED].quantile(0.01) == pytest.approx(
        40 * MS, rel=1e-3
    )
    assert only.counts.utilization() == pytest.approx(1.0, abs=0.07)


def test_work_follows_the_weight_of_a_request_and_the_cost_of_its_class() -> None:
    classes = vips("ann")
    heavy = check("ann", weight=3, claim=Criticality.CRITICAL)
    cheap = check("bob", claim=Criticality.BULK)
    capture = captured([(0, heavy), (1, cheap)])
    served = BackendSpec(100.0, 1, (10_000.0, 10_000.0, 10_000.0, 25_000.0))
    (only,) = results(capture, [book("own", fixed(100), callers=classes)], plan(served))
    assert only.counts.waits[Criticality.CRITICAL].quantile(1.0) == pytest.approx(30 * MS, rel=1e-3)
    assert only.counts.waits[Criticality.BULK].quantile(1.0) == pytest.approx(25 * MS, rel=1e-3)


def test_classes_are_those_of_the_first_rulebook_with_rules_for_all_of_them() -> None:
    asks = [check("ann", "/play", claim=Criticality.CRITICAL), check("bob", "/log")]
    mine = book("mine", fixed(10, "/log"), callers=vips("ann"))
    answer = report(every(2_000, 6, asks), [NONE, mine])
    none, with_rules = answer["rulebooks"]
    for one in (none, with_rules):
        assert [of["offered"] for of in one["classes"]] == [1_000, 1_000, 0, 0]
    critical, degraded = with_rules["classes"][:2]
    assert (critical["refused"], critical["answered_in_time"]) == (0, 1_000)
    assert (degraded["refused"], degraded["answered_in_time"]) == (880, 120)
    assert none["classes"][0]["answered_in_time"] == 62  # every other of the first 123
    assert answer["settings"]["classes_by"] == "mine"
    assert "mine serves CRITICAL best: 100.00% in time" in answer["sentence"]


def test_a_capture_played_twice_as_fast_is_twice_the_load_for_rules_and_backend() -> None:
    slow = every(2_000, 20)
    for speed, good, refused in ((1.0, 2_000, 0), (4.0, 900, 1_100)):
        (only,) = results(slow, [NINETY], plan(speed=speed))
        assert (ends(only.counts)[0], ends(only.counts)[3]) == (good, refused)
    (collapsed,) = results(slow, [NONE], plan(speed=4.0))
    assert ends(collapsed.counts)[0] == 99


def test_a_queue_that_is_full_turns_away_and_keeps_the_rest_in_time() -> None:
    (only,) = results(DOUBLE, [NONE], plan(queue_max=9))
    good, gave_up, turned_away, _ = ends(only.counts)
    # Nobody waits for more than the one at work and nine others.
    assert gave_up == 0
    assert good == pytest.approx(1_000, abs=10)
    assert turned_away == 2_000 - good
    assert only.counts.queue_peak == 9
    assert only.counts.waits[Criticality.DEGRADED].quantile(1.0) == pytest.approx(
        100 * MS, rel=0.05
    )


def test_naive_retries_ask_the_rules_again_and_feed_the_collapse() -> None:
    (once,) = results(DOUBLE, [NONE], plan())
    (again,) = results(DOUBLE, [NONE], plan(retries=NAIVE))
    assert sum(ends(again.counts)) == sum(ends(once.counts)) == 2_000
    assert again.counts.attempts > 3 * once.counts.attempts
    assert ends(again.counts)[0] == 99
    (refused,) = results(DOUBLE, [NINETY], plan(retries=NAIVE))
    assert refused.counts.attempts == 900 + 4 * 1_100
    assert refused.counts.by_rule == {"at-most-90": 4 * 1_100}
    # Who has given up four times has waited four times as long.
    assert again.counts.waits[Criticality.DEGRADED].quantile(1.0) == pytest.approx(
        2_000 * MS, rel=1e-3
    )


def test_a_retry_that_waits_can_be_let_in_by_the_next_window() -> None:
    burst = captured([(0.5, check("ann")) for _ in range(4)])
    patient = Retries(attempts=8, base_us=200_000)
    (only,) = results(burst, [book("one", fixed(2))], plan(retries=patient))
    assert ends(only.counts) == (4, 0, 0, 0)
    longest_us = only.counts.waits[Criticality.DEGRADED].quantile(1.0)
    assert longest_us is not None
    assert longest_us > 490 * MS  # to the next second


@pytest.mark.parametrize("front", POLICIES)
@pytest.mark.parametrize("retries", [None, Retries(attempts=3, base_us=50_000, budget_milli=100)])
def test_the_same_seed_says_the_same_to_the_byte(front: str, retries: Retries | None) -> None:
    asks = [check("ann", claim=Criticality.CRITICAL), check("bob", claim=Criticality.BULK)]
    capture = every(200, 7, asks)
    books = [NONE, book("mine", fixed(60), callers=vips("ann"))]
    drawn = Exponential(float(WHOLE_US))

    def text(seed: int) -> str:
        how = plan(service=drawn, retries=retries, seed=seed)
        return as_json(report(capture, books, how, front))

    assert text(3) == text(3)
    assert text(3) != text(4)


def test_rulebooks_meet_the_same_requests_with_the_same_work() -> None:
    how = plan(service=Exponential(float(WHOLE_US)), seed=5)
    twice = [book("one", fixed(70)), book("other", fixed(70))]
    one, other = report(every(1_000, 6), twice, how)["rulebooks"]
    assert {**one, "name": "", "digest": ""} == {**other, "name": "", "digest": ""}
    # Who is refused takes nothing from the draws of those who come later.
    traffic = traffic_of(every(100, 5), [NONE])
    assert [*traffic.arrivals(how)] == [*traffic.arrivals(how)]
    works = [arrival.work_us for arrival in traffic.arrivals(how)]
    assert len({*works}) > 90


def test_requests_out_of_order_come_at_the_latest_instant_before_them() -> None:
    capture = captured([(0, check("ann")), (0.5, check("ann")), (0.1, check("ann"))])
    traffic = traffic_of(capture, [NONE])
    assert [arrival.at_us for arrival in traffic.arrivals(plan())] == [0, 500 * MS, 500 * MS]
    assert traffic.out_of_order == 1
    assert any("1 requests came out of order" in note for note in report(capture, [NONE])["notes"])


def test_an_instant_with_everything_at_once_is_a_span_too() -> None:
    capture = captured([(0, check("ann")) for _ in range(30)])
    (only,) = results(capture, [NONE], plan(timeout_ms=100))
    assert ends(only.counts) == (10, 20, 0, 0)


def test_what_cannot_be_asked_counts_nowhere_and_is_told() -> None:
    capture = captured([(0, check("ann")), (0.1, mesh()), (0.2, check("ann"))])
    for front in POLICIES:
        answer = report(capture, [book("mine", fixed(100))], front=front)
        assert answer["rulebooks"][0]["offered"] == 2
        assert answer["rulebooks"][0]["unasked"] == 1
        assert any("1 requests could not be asked" in note for note in answer["notes"])


def test_of_a_capture_of_a_share_the_rest_is_told() -> None:
    capture = captured([(0, check("ann")), (1, check("ann"))], share=1_000, lost=7)
    notes = " ".join(report(capture, [NONE])["notes"])
    assert "10.00% of entities were captured" in notes
    assert "7 requests were lost" in notes


@pytest.mark.parametrize("front", POLICIES)
def test_every_request_ends_once_and_progress_comes_to_the_end(front: str) -> None:
    on_count: list[tuple[int, int, str]] = []
    books = [NONE, NINETY]
    traffic = traffic_of(every(2_500, 5), books)
    both = run_rulebooks(
        plan(), traffic, books, front=front, progress=lambda *counts: on_count.append(counts)
    )
    for one in both:
        assert sum(one.counts.ended) == 2_500
        assert sum(one.counts.slice_ended) == 2_500
    assert on_count[0] == (0, 5_000, "none")
    assert on_count[-1] == (5_000, 5_000, "")
    assert [done for done, _, _ in on_count] == sorted(done for done, _, _ in on_count)
    assert len(on_count) == 5


@pytest.mark.parametrize("front", POLICIES)
def test_an_interrupt_ends_it_at_once_and_leaves_nothing_behind(front: str) -> None:
    def stop(done: int, total: int, name: str) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_rulebooks(
            plan(), traffic_of(every(2_100, 5), [NONE]), [NONE], front=front, progress=stop
        )


def test_our_policies_behind_the_rules_keep_what_matters_served_where_a_pool_does_not() -> None:
    asks = [check("ann", claim=Criticality.CRITICAL), *[check("bob", claim=Criticality.BULK)] * 3]
    capture = every(2_000, 5, asks)
    mine = book("mine", fixed(10_000), callers=vips("ann"))
    (pool,), (chain,) = (results(capture, [mine], plan(), front) for front in ("fifo", "chain"))
    assert ends(pool.counts, Criticality.CRITICAL)[0] < 100
    assert ends(chain.counts, Criticality.CRITICAL)[0] > 470
    assert ends(chain.counts, Criticality.BULK)[2] > 500  # turned away
    assert chain.counts.useful() > 0.8


def test_a_service_without_rules_shows_its_policies_the_class_that_is_counted() -> None:
    asks = [check("ann", claim=Criticality.CRITICAL), *[check("bob")] * 3]
    mine = book("mine", fixed(10_000), callers=vips("ann"))
    none, same = results(every(1_000, 5, asks), [NONE, mine], plan(), "chain")
    assert none.counts.ended == same.counts.ended
    assert ends(none.counts, Criticality.CRITICAL)[0] > 2 * ends(none.counts)[0] / 3


def test_a_rulebook_that_gives_another_class_is_told() -> None:
    asks = [check("ann", claim=Criticality.CRITICAL), check("bob")]
    mine = book("mine", fixed(10_000), callers=vips("ann"))
    other = book("other", fixed(10_000))
    answer = report(every(10, 5, asks), [mine, other])
    assert [one["reclassified"] for one in answer["rulebooks"]] == [0, 5]
    assert any(note.startswith("other gives 5 requests another class") for note in answer["notes"])


def test_nothing_captured_no_rulebook_or_too_many_are_refused() -> None:
    with pytest.raises(BadValue, match="no captured request"):
        traffic_of(CapturedTraffic(), [NONE])
    traffic = traffic_of(every(2, 5), [NONE])
    for books in ([], [NONE] * 9):
        with pytest.raises(BadValue, match="--rules"):
            run_rulebooks(plan(), traffic, books)
    with pytest.raises(BadValue, match="chain, queue"):
        run_rulebooks(plan(), traffic, [NONE], front="nobody")
    far = every(2, 5)
    far.at_us = array("q", [0, 401 * 86_400_000_000])
    with pytest.raises(BadValue, match="400 days"):
        traffic_of(far, [NONE])
    assert traffic_of(far, [NONE], speed=2).span_us < 400 * 86_400_000_000
