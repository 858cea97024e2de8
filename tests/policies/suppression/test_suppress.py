from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.reasons import SUPPRESSED
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import (
    AccountCount,
    AccountFactor,
    FactorMessage,
    SuppressReport,
)
from sluicegate.kernels.moving_rate import SlotRing
from sluicegate.policies.suppression.suppress import Suppress, SuppressPermit, SuppressSettings
from sluicegate.policies.suppression.suppress_master import (
    WINDOWS_US,
    AccountLimit,
    SuppressMaster,
    SuppressMasterSettings,
    estimate,
)
from sluicegate.testing import SeededChance

S = 1_000_000
SETTINGS = SuppressMasterSettings()
NEWS_S = 0.3  # reports, and a slot of the shortest window
MS = 1_000
L = 1_000
CATCH_UP = 400  # requests that a node serves in 10 ms after it stood still
START_US = 1_000_000_000_000_000


def limited(_: str) -> AccountLimit | None:
    return AccountLimit(L)


@final
class Cluster:
    """Nodes and a master on one hand-moved clock; messages take their time, and may be lost."""

    def __init__(
        self,
        nodes: int = 4,
        *,
        settings: SuppressMasterSettings | None = None,
        node_settings: SuppressSettings | None = None,
        limit_of: Callable[[str], AccountLimit | None] = limited,
        delay_us: int = 20 * MS,
        seed: int = 1,
    ) -> None:
        self.now_us = START_US
        self.rng = random.Random(seed)
        self.nodes = [Suppress(f"n{n}", 1, SeededChance(n), node_settings) for n in range(nodes)]
        self.settings = settings
        self.limit_of = limit_of
        self.master = SuppressMaster("m1", 1, limit_of, self.now_us, settings)
        self.cut: set[int] = set()
        self.loss = 0.0
        self.delay_us = delay_us
        self.to_master: list[tuple[int, int, SuppressReport]] = []
        self.to_node: list[tuple[int, int, FactorMessage]] = []
        self.attempted: list[int] = []  # a tenth of a second each
        self.admitted: list[int] = []
        self.owed = 0.0
        self.standing: dict[int, list[Request]] = {}  # nodes that stand still, and what waits
        self.pending: dict[int, list[Request]] = {}  # what waited, while they catch up

    def stand(self, node: int) -> None:
        self.standing[node] = []

    def wake(self, node: int) -> None:
        self.pending[node] = self.standing.pop(node)

    def take_over(self) -> None:
        self.master = SuppressMaster("m2", 2, self.limit_of, self.now_us, self.settings)

    def run(
        self,
        seconds: float,
        rate: float,
        *,
        shares: list[float] | None = None,
        weight: int = 1,
        poisson: bool = False,
        account: str = "acct",
    ) -> None:
        """In steps of 10 ms: what the nodes attempt, and the messages of that time."""
        weights = shares or [1.0] * len(self.nodes)
        for step in range(round(seconds * 100)):
            if step % 10 == 0:
                self.attempted.append(0)
                self.admitted.append(0)
            self._step(rate, weights, weight, poisson, account)

    def _step(
        self, rate: float, weights: list[float], weight: int, poisson: bool, account: str
    ) -> None:
        self.now_us += 10 * MS
        mean = rate / 100 / weight
        if poisson:
            count, level = 0, self.rng.expovariate(1.0)
            while level < mean:
                count, level = count + 1, level + self.rng.expovariate(1.0)
        else:
            self.owed += mean
            count = int(self.owed)
            self.owed -= count
        for node in self.rng.choices(range(len(self.nodes)), weights, k=count):
            request = Request("k", caller=account, cost=weight)
            self.attempted[-1] += weight
            if node in self.standing:
                self.standing[node].append(request)
            else:
                self._admit(node, request)
        for node, waiting in self.pending.items():
            for request in waiting[:CATCH_UP]:
                self._admit(node, request)
            del waiting[:CATCH_UP]
        self._messages()

    def _admit(self, node: int, request: Request) -> None:
        permit = self.nodes[node].admit(request, self.now_us)
        if not isinstance(permit, Decision):
            self.admitted[-1] += request.cost
            permit.end(Outcome.SUCCESS, self.now_us)

    def _messages(self) -> None:
        now_us = self.now_us
        for n, node in enumerate(self.nodes):
            if n in self.standing:
                continue
            report = node.report(now_us)
            if report is not None and n not in self.cut and self.rng.random() >= self.loss:
                self.to_master.append((now_us + self.delay_us, n, report))
        for _, n, report in [late for late in self.to_master if late[0] <= now_us]:
            answer = self.master.receive(report, now_us)
            if answer is not None and n not in self.cut and self.rng.random() >= self.loss:
                self.to_node.append((now_us + self.delay_us, n, answer))
        self.to_master = [late for late in self.to_master if late[0] > now_us]
        due = [late for late in self.to_node if late[0] <= now_us and late[1] not in self.standing]
        for _, n, answer in due:
            self.nodes[n].receive(answer, now_us)
        self.to_node = [late for late in self.to_node if late not in due]

    def admitted_in_limits(self, begin_s: float, end_s: float) -> float:
        """The mean rate admitted between two instants of the run, in limits."""
        cells = self.admitted[round(begin_s * 10) : round(end_s * 10)]
        return sum(cells) * 10 / len(cells) / L

    def suppressed(self) -> int:
        return sum(node.stats().suppressed + node.stats().fused for node in self.nodes)

    def overshoot(self, begin_s: float, end_s: float) -> float:
        """What was admitted above L in a span, in seconds of the limit."""
        span = self.admitted[round(begin_s * 10) : round(end_s * 10)]
        return sum(span) / L - len(span) / 10


def test_a_tenfold_step_settles_in_three_seconds_with_little_too_much() -> None:
    skewed = [10.0] + [1.0] * 19
    for seed in range(2):
        world = Cluster(20, seed=seed)
        world.run(6, 0.8 * L)
        world.attempted = [0] * 100
        world.admitted = [0] * 100
        assert world.suppressed() == 0
        world.run(8, 10 * L, shares=skewed)
        assert world.overshoot(10, 13) <= 2.0 + 1.0, "2 limit-seconds beyond the burst of one"
        assert 0.95 <= world.admitted_in_limits(12, 14) <= 1.05
        assert 0.97 <= world.admitted_in_limits(13, 18) <= 1.03


def test_when_the_load_is_gone_so_is_the_suppression_also_if_it_moves_between_nodes() -> None:
    world = Cluster(8)
    world.run(8, 10 * L, shares=[1.0] * 4 + [0.0] * 4)
    world.run(5, 0.9 * L, shares=[0.0] * 4 + [1.0] * 4)
    before = world.suppressed()
    world.run(10, 0.9 * L, shares=[0.0] * 4 + [1.0] * 4)
    assert world.suppressed() == before
    assert world.admitted_in_limits(10, 23) > 0.88


@pytest.mark.parametrize("limit", [10, 100, 1_000, 10_000])
def test_poisson_traffic_at_99_percent_of_the_limit_is_never_suppressed(limit: int) -> None:
    world = Cluster(4, limit_of=lambda _: AccountLimit(limit), seed=limit)
    seconds = 10 if limit > 1_000 else 60
    world.run(seconds, 0.99 * limit, poisson=True)
    assert world.suppressed() == 0


def test_an_account_that_spends_its_burst_every_time_it_has_it_is_never_suppressed() -> None:
    world = Cluster(4)
    for n in range(20):
        hot = [0.0] * 4
        hot[n % 4] = 1.0
        world.run(0.1, 10 * L * 1.09, shares=hot)  # the burst and the tenth of a second's worth
        world.run(0.3 + n % 3 * 0.2, 0)
        idle_s = 0.3 + n % 3 * 0.2
        world.run(1.0 - idle_s, 0)
    assert world.suppressed() == 0


def noticed_s(limit: int, over: float) -> float:
    """When an excess shows in the run, which begins with it: when it has `over` t limits, and of
    them t + delay + B / L + sigmas sqrt(t / L) are explained.
    """
    chance, more = SETTINGS.sigmas / math.sqrt(limit), over - 1
    fixed = 1 + SETTINGS.delay_us / S
    return float(((chance + math.sqrt(chance**2 + 4 * more * fixed)) / (2 * more)) ** 2)


@pytest.mark.parametrize("limit", [100, 1_000])
@pytest.mark.parametrize("over", [1.2, 1.5, 2.0, 4.0])
def test_an_excess_is_noticed_when_its_burst_is_spent_and_chance_does_not_explain_it(
    over: float, limit: int
) -> None:
    """With even traffic. It conforms for 1 / (over - 1) seconds, and nobody is over till then.

    Afterwards it is held to its limit.
    """
    world = Cluster(4, limit_of=lambda _: AccountLimit(limit), seed=3)
    weight = max(limit // 200, 1)
    world.run(24, 0.8 * limit, weight=weight)
    factors: list[float] = []
    until_s = noticed_s(limit, over)
    while len(factors) < (until_s + NEWS_S) * 10:
        world.run(0.1, over * limit, weight=weight)
        factors.append(world.master.factor("acct", world.now_us))
    assert not any(factors[: int(10 / (over - 1))])
    assert factors[-1] > 0.0
    world.run(10, over * limit, weight=weight)
    assert 0.93 <= sum(world.admitted[-100:]) / 10 / limit <= 1.07


@pytest.mark.parametrize("limit", [1_000, 100_000])
@pytest.mark.parametrize("over", [1.2, 1.5, 3.0, 10.0])
def test_three_seconds_after_its_burst_is_spent_an_account_is_held_and_stays_so_where_it_moves(
    over: float, limit: int
) -> None:
    """A burst of a second explains 1.2 L for 5 s, 3 L for half of one: until then nobody is over.

    Held is: every second admits what the limit is, give or take 5%.
    """
    world = Cluster(4, limit_of=lambda _: AccountLimit(limit))
    weight = limit // 200
    world.run(8, 0.8 * limit, weight=weight, shares=[4.0, 1.0, 1.0, 1.0])
    spent_s = round(1 / (over - 1), 1)
    world.run(spent_s + 6, over * limit, weight=weight, shares=[4.0, 1.0, 1.0, 1.0])
    moved_s = len(world.admitted) / 10
    world.run(6, over * limit, weight=weight, shares=[0.2, 0.2, 6.0, 0.2])
    for begin_s, end_s in ((8 + spent_s + 3, moved_s), (moved_s + 3, moved_s + 6)):
        for tenth in range(round(begin_s * 10), round(end_s * 10) - 9):
            second = sum(world.admitted[tenth : tenth + 10]) / limit
            assert 0.95 <= second <= 1.05, tenth / 10


def test_a_small_excess_is_held_without_a_gap_from_its_first_second_on() -> None:
    """What is over has spent its burst, so the burst explains nothing of it any more."""
    world = Cluster(4, seed=3)
    world.run(8, 0.8 * L, poisson=True)
    factors = []
    for _ in range(160):
        world.run(0.1, 1.2 * L, poisson=True)
        factors.append(world.master.factor("acct", world.now_us))
    first = next(at for at, factor in enumerate(factors) if factor > 0.0)
    gaps = sum(factor == 0.0 for factor in factors[first:])
    assert first <= 80, "5 s of it conform"
    assert gaps <= 5


def test_the_seeds_24_seconds_do_the_same_later_and_let_go_later() -> None:
    seeds = Cluster(4, settings=SuppressMasterSettings(form="mean"))
    ladder = Cluster(4)
    for world in (seeds, ladder):
        world.run(6, 0.8 * L)
        world.run(26, 5 * L)
        world.run(6, 0.5 * L)
    assert 0.97 <= seeds.admitted_in_limits(30, 32) <= 1.03, "what is attempted is known"
    assert seeds.overshoot(6, 32) > 3 * ladder.overshoot(6, 32)
    assert seeds.admitted_in_limits(33, 38) < 0.35
    assert ladder.admitted_in_limits(33, 38) > 0.45


def test_a_coin_for_each_operation_holds_the_limit_less_evenly() -> None:
    world = Cluster(4, node_settings=SuppressSettings(rejection="coin"))
    world.run(15, 10 * L)
    assert 0.95 <= world.admitted_in_limits(5, 15) <= 1.05
    policy = node(fuse_ratio=0, rejection="coin")
    policy.admit(OP, 0)
    policy.receive(factor_message(1, 1, 0.25), 0)
    answers = [isinstance(policy.admit(OP, 0), Decision) for _ in range(400)]
    assert 60 <= sum(answers) <= 140
    assert any(sum(answers[n : n + 4]) != 1 for n in range(0, 400, 4))


def test_a_node_that_knows_the_limit_holds_an_account_to_it_before_any_master_answers() -> None:
    ratio_of_seed = SuppressSettings(fuse_ratio=1)
    policy = Suppress("n", 1, SeededChance(1), ratio_of_seed, limited)
    admitted = sum(not isinstance(policy.admit(OP, 0), Decision) for _ in range(10 * L))
    assert admitted == L
    assert policy.stats().unknown == 0
    stranger = Suppress("n", 1, SeededChance(1), ratio_of_seed)
    admitted = sum(not isinstance(stranger.admit(OP, 0), Decision) for _ in range(10 * L))
    assert admitted == 10 * L, "the control"


def test_a_node_that_never_hears_a_master_goes_over_to_its_share_of_the_nodes() -> None:
    policy = Suppress("n", 1, SeededChance(1), SuppressSettings(decay_us=2 * S), limited)
    policy.assign(lambda _: "lost", 5)
    admitted = [0] * 10
    for n in range(1_000):
        policy.report(n * 10 * MS, "lost")
        for _ in range(20):
            admitted[n // 100] += not isinstance(policy.admit(OP, n * 10 * MS), Decision)
    assert 0.95 * L / 5 <= admitted[-1] <= 1.1 * L / 5


def test_a_node_whose_rate_jumps_reports_early_and_only_then() -> None:
    policy = Suppress("n", 1, SeededChance(1), SuppressSettings(
        interval_us=2 * S, heartbeat_us=2 * S, doubt_us=8 * S
    ), limited)  # fmt: skip
    policy.admit(OP, 0)
    assert policy.report(0) is not None
    for n in range(L):
        policy.admit(OP, n)
    assert policy.report(60 * MS) is None, "within a burst there is no hurry"
    policy.admit(OP, 60 * MS)
    assert policy.report(40 * MS) is None
    early = policy.report(60 * MS)
    assert early is not None
    assert early.counts[0].delta == L + 1
    for _ in range(5):
        policy.admit(OP, 70 * MS)
    assert policy.report(200 * MS) is None


def test_what_a_node_rejects_in_silence_is_no_word_on_an_account_to_its_next_master() -> None:
    policy = Suppress("n", 1, SeededChance(1), None, limited)
    policy.assign(lambda _: "first", 5)
    for n in range(800):
        policy.admit(OP, n * 10 * MS)
        policy.admit(OP, n * 10 * MS)
        policy.admit(OP, n * 10 * MS)
        policy.report(n * 10 * MS, "first")
    assert policy.factor("acct", 8 * S) > 0.2
    policy.assign(lambda _: "second", 5)
    report = policy.report(8 * S, "second")
    assert report is not None
    assert report.counts[0].factor == 0.0


def test_lost_reports_are_made_up_by_the_next_ones() -> None:
    world = Cluster(8)
    world.loss = 0.2
    world.run(15, 10 * L)
    assert 0.95 <= world.admitted_in_limits(5, 15) <= 1.05


def test_late_and_doubled_messages_change_nothing() -> None:
    master = SuppressMaster("m", 1, limited, START_US)
    first = SuppressReport("n", 1, (AccountCount("a", 100, 100, 0.0),))
    second = SuppressReport("n", 1, (AccountCount("a", 50, 150, 0.0),))
    master.receive(second, START_US)
    for n in range(50):
        master.receive(first, START_US + n)
        master.receive(second, START_US + n)
    assert master.factor("a", START_US + 100 * MS) == 0.0
    # All there ever was: 50 of the delta, for what came before it was never heard.
    once = SuppressMaster("m", 1, lambda _: AccountLimit(1, 0), START_US)
    for _ in range(9):
        answer = once.receive(second, START_US)
    again = SuppressMaster("m", 1, lambda _: AccountLimit(1, 0), START_US)
    single = again.receive(second, START_US)
    assert answer is not None
    assert single is not None
    assert answer.factors == single.factors


def test_a_late_word_takes_nothing_away() -> None:
    late = SuppressReport("n", 1, (AccountCount("a", 100, 100, 0.0),))
    report = SuppressReport("n", 1, (AccountCount("a", 50, 150, 0.0),))
    more = SuppressReport("n", 1, (AccountCount("a", 50, 200, 0.0),))
    factors = []
    for messages in ([report, more], [report, late, more]):
        master = SuppressMaster("m", 1, lambda _: AccountLimit(1, 0), START_US)
        for message in messages:
            master.receive(message, START_US)
        factors.append(master.factor("a", START_US + S // 4))
    assert factors[0] == factors[1] > 0.0


def test_a_burst_that_is_over_is_no_reason_to_reject_what_comes_after_it() -> None:
    windows = [SlotRing(10, span_us // 10) for span_us in WINDOWS_US]
    rates = [(20, 10 * L), (4, 1.1 * L)]
    now_us = START_US
    for seconds, rate in rates:
        for _ in range(seconds * 20):
            now_us += 50 * MS
            for window in windows:
                window.add(round(rate / 20), now_us)
    over, rate = estimate(windows, (0.0, 0.0), L, L, now_us, delay_us=150 * MS, sigmas=3.0)
    assert not over
    assert 1.0 * L <= rate <= 1.2 * L


def test_a_node_without_an_answer_goes_over_to_its_equal_share() -> None:
    policy = node(fuse_ratio=0, decay_us=2 * S)
    policy.admit(OP, 0)
    policy.receive(factor_message(1, 1, 0.0), 0)
    for n in range(500):
        policy.admit(Request("k", caller="acct", cost=10), n * 10 * MS)
        policy.report(n * 10 * MS)
    assert 0.7 < policy.factor("acct", 5 * S) < 0.8, "of 1,000 a second a quarter passes"
    assert policy.receive(factor_message(1, 2, 0.1), 5 * S) == 1
    assert policy.factor("acct", 5 * S) == 0.1


def test_a_word_from_before_a_nodes_restart_is_void() -> None:
    master = SuppressMaster("m", 1, limited, START_US)
    assert (
        master.receive(SuppressReport("n", 2, (AccountCount("a", 1, 1, 0.0),)), START_US)
        is not None
    )
    assert (
        master.receive(SuppressReport("n", 1, (AccountCount("a", 9_000, 9_000, 0.0),)), START_US)
        is None
    )
    assert master.stats().void == 1
    assert (
        master.receive(SuppressReport("n", 3, (AccountCount("a", 1, 1, 0.0),)), START_US)
        is not None
    )


@pytest.mark.parametrize(("back_us", "void"), [(0, 0), (1, 1), (30 * 86_400 * S, 10)])
def test_a_node_whose_clock_was_set_back_is_heard_again_soon(back_us: int, void: int) -> None:
    """Or nobody would know of its load, and it of no factor, until it is forgotten."""
    master = SuppressMaster("m", 1, limited, START_US)
    assert master.receive(SuppressReport("n", START_US, ()), START_US) is not None
    policy = Suppress("n", START_US - back_us, SeededChance(1))
    policy.admit(OP, START_US)
    for tick in range(void + 1):
        report = policy.report(START_US + tick * S)
        assert report is not None
        answer = master.receive(report, START_US)
        assert (answer is None) == (tick < void)
        policy.raise_boot()
    for _ in range(100):
        policy.raise_boot()
    assert policy.boot < 1 << 53, "the wire's whole numbers"


def counted(node: str, total: int, factor: float, *, generation: int = 9) -> SuppressReport:
    count = AccountCount("acct", total, total, factor)
    return SuppressReport(node, 1, (count,), 1, generation)


def test_a_node_that_comes_from_another_master_brings_what_that_one_said() -> None:
    """As after a partition; who has heard this one says nothing new."""
    master = SuppressMaster("m", 1, limited, START_US)
    later_us = START_US + 5 * S
    for tick in range(101):  # it has the account all the time
        master.receive(counted("near", tick, 0.0), START_US + tick * 50 * MS)
    master.receive(counted("far", 1, 0.75), later_us)
    assert master.factor("acct", later_us + 50 * MS) == 0.0
    master.receive(counted("far", 2, 0.75, generation=0), later_us)
    assert master.factor("acct", later_us + 100 * MS) == 0.75
    for tick in range(80):
        master.receive(counted("near", 101 + tick, 0.0), later_us + tick * 50 * MS)
    assert master.factor("acct", later_us + 4 * S) == 0.0
    master.receive(counted("far", 3, 0.25, generation=0), later_us + 4 * S)
    assert master.factor("acct", later_us + 4 * S + 50 * MS) == 0.25, "not what was once"


def test_who_is_over_is_not_let_go_when_nodes_fall_silent_and_who_conforms_is_not_rejected() -> (
    None
):
    for before_s in (6, 15, 17):
        cluster = Cluster(4)
        cluster.run(before_s, 3.0 * L)
        cluster.cut = {2, 3}
        # The other half attempts 0.8 of the limit, and those that are cut off hold what they had.
        cluster.run(2, 1.6 * L)
        assert cluster.admitted_in_limits(before_s + 0.5, before_s + 2) <= 1.1
    assert set(cluster.master.silent_nodes(cluster.now_us)) == {"n2", "n3"}
    conforming = Cluster(4)
    conforming.run(6, 0.95 * L)
    conforming.cut = {2, 3}
    conforming.run(1.5, 0.95 * L, shares=[1, 1, 0, 0])
    assert conforming.suppressed() == 0


def factor_message(term: int, generation: int, factor: float, *, nodes: int = 4) -> FactorMessage:
    return FactorMessage(
        "m", term, generation, 2 * S, nodes, (AccountFactor("acct", factor, L, L),)
    )


def node(**settings: object) -> Suppress:
    return Suppress("n", 1, SeededChance(1), SuppressSettings(**settings))  # type: ignore[arg-type]


OP = Request("k", caller="acct")


def test_late_generations_and_terms_are_void() -> None:
    policy = node()
    policy.admit(OP, 0)
    assert policy.receive(factor_message(2, 5, 0.5), 0) == 1
    for late in (factor_message(2, 5, 0.9), factor_message(2, 4, 0.9), factor_message(1, 99, 0.9)):
        assert policy.receive(late, 0) == 0
        assert policy.factor("acct", 0) == 0.5
    assert policy.receive(factor_message(2, 6, 0.2), 0) == 1
    assert policy.receive(factor_message(3, 1, 0.1), 0) == 1
    assert policy.factor("acct", 0) == 0.1
    assert policy.stats().void == 3


def test_a_fraction_is_rejected_evenly_and_exactly_with_its_reason() -> None:
    policy = node(fuse_ratio=0)
    policy.admit(OP, 0)
    policy.receive(factor_message(1, 1, 0.25), 0)
    answers = [policy.admit(OP, 0) for _ in range(400)]
    refused = [answer for answer in answers if isinstance(answer, Decision)]
    assert len(refused) == 100
    assert refused[0].reason is SUPPRESSED
    assert refused[0].retry_after_us == S
    for n in range(0, 400, 4):
        assert sum(isinstance(answer, Decision) for answer in answers[n : n + 4]) == 1


def test_a_node_alone_never_admits_more_than_twice_the_limit() -> None:
    policy = node()
    policy.admit(OP, 0)
    policy.receive(factor_message(1, 1, 0.0), 0)
    admitted = sum(not isinstance(policy.admit(OP, n * 10), Decision) for n in range(100_000))
    assert admitted <= 2 * L + 2 * L + 1
    assert policy.stats().fused == 100_000 - admitted
    fuse = policy.admit(Request("k", caller="acct", cost=L), S)
    assert isinstance(fuse, Decision)
    assert fuse.retry_after_us > 0


def test_a_repeated_operation_is_not_counted_as_demand_but_rejected_like_any_other() -> None:
    policy = node()
    again = Request("k", caller="acct", attributes={"retry": "1"})
    for _ in range(10):
        policy.admit(OP, 0)
        policy.admit(again, 0)
    report = policy.report(0)
    assert report is not None
    assert report.counts[0].total == 10
    policy.receive(factor_message(1, 1, 1.0), 0)
    assert isinstance(policy.admit(again, 0), Decision)


def test_what_was_rejected_is_attempted_all_the_same() -> None:
    policy = node()
    policy.admit(OP, 0)
    policy.receive(factor_message(1, 1, 1.0), 0)
    for _ in range(9):
        assert isinstance(policy.admit(Request("k", caller="acct", cost=1001), 0), Decision)
    report = policy.report(0)
    assert report is not None
    assert report.counts == (AccountCount("acct", 9 * 1001 + 1, 9 * 1001 + 1, 1.0),)


def test_an_operation_that_was_unwound_was_not_attempted() -> None:
    policy = node()
    permits = [policy.admit(OP, 0) for _ in range(10)]
    for permit in permits[:4]:
        assert permit.end(Outcome.IGNORE, 0, spent=False)  # type: ignore[union-attr]
        assert not permit.end(Outcome.IGNORE, 0, spent=False)  # type: ignore[union-attr]
    report = policy.report(0)
    assert report is not None
    assert report.counts[0].total == 6
    permits[5].end(Outcome.IGNORE, 0, spent=False)  # type: ignore[union-attr]
    policy.admit(OP, 0)
    later = policy.report(S)
    assert later is not None
    assert later.counts[0] == AccountCount("acct", 1, 7, 0.0), "what was told is not taken back"


def test_reports_come_each_interval_with_what_has_changed() -> None:
    policy = node(report_accounts_max=2, interval_us=100 * MS)
    for name in ("a", "b", "c"):
        policy.admit(Request("k", caller=name), 0)
    first = policy.report(0)
    assert first is not None
    assert [count.account for count in first.counts] == ["a", "b"]
    assert policy.report(99 * MS) is None
    second = policy.report(100 * MS)
    assert second is not None
    assert [count.account for count in second.counts] == ["c"]
    assert policy.report(200 * MS) is None
    assert policy.report(300 * MS) is None, "not yet a heartbeat since the last one"
    assert policy.report(600 * MS) == SuppressReport("n", 1, ())


def test_a_suppressed_account_is_told_of_even_when_it_is_idle() -> None:
    policy = node()
    policy.admit(OP, 0)
    policy.report(0)
    policy.receive(factor_message(1, 1, 0.5), 0)
    policy.admit(OP, 1)
    for n in range(1, 5):
        report = policy.report(n * 100 * MS)
        assert report is not None
        assert report.counts[0].factor == 0.5
    policy.receive(factor_message(1, 2, 0.0), 500 * MS)
    policy.report(500 * MS)
    assert policy.report(600 * MS) is None
    assert policy.factor("acct", 700 * MS) == 0.0


def test_an_idle_account_is_not_in_silence() -> None:
    policy = node()
    policy.admit(OP, 0)
    policy.report(0)
    policy.receive(factor_message(1, 1, 0.0, nodes=100), 0)
    for at_us in (49 * S, 50 * S - 60 * MS):  # as it does all the time
        policy.report(at_us)
    for _ in range(L):
        assert not isinstance(policy.admit(OP, 50 * S), Decision), "its burst is its own"
    policy.report(50 * S)
    assert policy.factor("acct", 50 * S + 500 * MS) == 0.0
    assert policy.factor("acct", 50 * S + 501 * MS) > 0.0, "but now it has asked"


def test_what_was_not_answered_is_asked_again_until_it_is() -> None:
    policy = node()
    policy.admit(OP, 0)
    policy.receive(factor_message(1, 1, 0.0), 0)
    for n in range(1, 4):
        report = policy.report(n * 50 * MS)
        assert report is not None
        assert [(count.delta, count.total) for count in report.counts] == [(n == 1, 1)]
    policy.receive(factor_message(1, 2, 0.0), 190 * MS)
    assert policy.report(200 * MS) is None


def test_a_surge_at_a_node_that_is_cut_off_gets_what_the_node_had_before() -> None:
    policy = node(fuse_ratio=0)
    admitted = {True: 0, False: 0}
    for n in range(600):  # 100 a second for 3 s, and 1,000 from then on; nothing is heard after 2 s
        for _ in range(1 if n < 300 else 10):
            judged = policy.admit(OP, n * 10 * MS)
            admitted[n >= 400] += not isinstance(judged, Decision)
        if policy.report(n * 10 * MS) is not None and n < 200:
            policy.receive(factor_message(1, n + 1, 0.0, nodes=20), n * 10 * MS)
    assert 100 * 2 * 0.8 <= admitted[True] <= 100 * 2 * 1.1
    assert admitted[False] <= 300 + 100 * 4, "the surge's first second"


def test_cut_off_a_node_keeps_what_it_admits_and_then_goes_over_to_an_equal_share() -> None:
    world = Cluster(4)
    world.run(10, 10 * L)
    before = world.nodes[0].factor("acct", world.now_us)
    assert 0.88 < before < 0.92
    world.cut = {0, 1}
    world.run(1.5, 10 * L)
    assert abs(world.nodes[0].factor("acct", world.now_us) - before) < 0.02
    world.run(12, 10 * L)
    assert 0.95 <= world.admitted_in_limits(17, 23.5) <= 1.05
    for cell in range(100, 230, 10):
        assert sum(world.admitted[cell : cell + 10]) / L <= 1.5
    world.cut = set()
    world.run(6, 10 * L)
    assert 0.95 <= world.admitted_in_limits(25, 29.5) <= 1.05, "and back, without a flood of counts"


def test_a_new_master_goes_on_where_the_old_one_was() -> None:
    world = Cluster(4)
    world.run(8, 10 * L)
    world.take_over()
    world.run(8, 10 * L)
    assert 0.9 <= world.admitted_in_limits(8, 9) <= 1.1
    assert 0.97 <= world.admitted_in_limits(8, 16) <= 1.03
    quiet = Cluster(4)
    quiet.run(8, 0.9 * L)
    quiet.take_over()
    quiet.run(8, 0.9 * L)
    assert quiet.suppressed() == 0


def test_heavy_operations_are_rejected_by_their_weight() -> None:
    world = Cluster(4, limit_of=lambda _: AccountLimit(100_000), node_settings=None)
    world.run(16, 1_000_000, weight=1001)
    assert 0.93 <= world.admitted_in_limits(6, 16) * L / 100_000 <= 1.07


def test_an_account_without_a_limit_is_never_suppressed_and_counted_as_unknown() -> None:
    world = Cluster(2, limit_of=lambda _: None)
    world.run(5, 10 * L)
    assert world.suppressed() == 0
    assert world.nodes[0].stats().unknown > 0
    assert world.master.stats().accounts == 0


def test_accounts_and_nodes_are_bounded() -> None:
    policy = node(accounts_max=3, idle_us=S)
    for n in range(10):
        policy.admit(Request("k", caller=f"a{n}"), 0)
    assert policy.stats().accounts == 3
    assert policy.stats().untracked == 7
    assert policy.admit(Request("k", caller="x"), 0) is NOTHING_HELD
    assert isinstance(policy.admit(Request("k", caller="x"), 2 * S), SuppressPermit)

    settings = SuppressMasterSettings(accounts_max=2, nodes_max=2)
    master = SuppressMaster("m", 1, limited, START_US, settings)
    for n in range(5):
        master.receive(SuppressReport(f"n{n}", 1, (AccountCount(f"a{n}", 1, 1, 0.0),)), START_US)
    assert master.stats()[2:] == (2, 0, 2, 3)
    later = START_US + 61 * S
    assert (
        master.receive(SuppressReport("n9", 1, (AccountCount("a9", 1, 1, 0.0),)), later) is not None
    )
    assert master.stats().nodes == 1
    assert master.stats().accounts == 1
    master.broadcast(later + 61 * S)
    assert master.stats().nodes == 0


def test_a_master_tells_unasked_who_is_suppressed() -> None:
    world = Cluster(2)
    world.run(3, 10 * L)
    message = world.master.broadcast(world.now_us)
    assert [factor.account for factor in message.factors] == ["acct"]
    assert message.factors[0].per_s == L
    assert message.nodes == 2
    fresh = Suppress("new", 1, SeededChance(1))
    fresh.admit(OP, world.now_us)
    assert fresh.receive(message, world.now_us) == 1
    assert fresh.factor("acct", world.now_us) > 0.8


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(BadValue, match=r"suppress\.interval_us"):
        SuppressSettings(interval_us=0)
    with pytest.raises(BadValue, match=r"suppress\.node"):
        Suppress("", 1, SeededChance(1))
    with pytest.raises(BadValue, match=r"suppress_master\.form"):
        SuppressMasterSettings(form="median")
    with pytest.raises(BadValue, match=r"suppress\.rejection"):
        SuppressSettings(rejection="dice")
    with pytest.raises(BadValue, match=r"suppress_master\.sigmas"):
        SuppressMasterSettings(sigmas=float("nan"))
    master = SuppressMaster("m", 1, lambda _: AccountLimit(0), START_US)
    with pytest.raises(BadValue, match=r"suppress_master\.limit"):
        master.receive(SuppressReport("n", 1, (AccountCount("a", 1, 1, 0.0),)), START_US)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 200 * MS)), max_size=60)
)
def test_totals_never_fall_and_deltas_add_up(steps: list[tuple[int, int, int]]) -> None:
    policy = node()
    permits: list[SuppressPermit] = []
    now_us = 0
    delta_sum = 0
    total = 0
    for what, which, later_us in steps:
        now_us += later_us
        if what == 0:
            permit = policy.admit(Request("k", caller="acct", cost=which), now_us)
            assert isinstance(permit, SuppressPermit)
            permits.append(permit)
        elif what == 1 and permits:
            permit = permits.pop(which % len(permits))
            assert permit.end(Outcome.IGNORE, now_us, spent=which % 2 == 0)
            assert not permit.end(Outcome.SUCCESS, now_us, spent=False)
        else:
            report = policy.report(now_us)
            if report is not None and report.counts:
                assert report.counts[0].total >= total
                delta_sum += report.counts[0].delta
                total = report.counts[0].total
                assert delta_sum == total


@pytest.mark.parametrize("seed", [41, 42, 43])
@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("times", [1.5, 3.0, 10.0])
def test_standstill_of_node_is_no_burst(times: float, share: float, seed: int) -> None:
    """What waited is let in within a second, by the fraction; then the account has its limit."""
    cluster, shares = Cluster(5, seed=seed), [share, *[(1 - share) / 4] * 4]
    cluster.run(10, times * L, shares=shares)
    cluster.stand(0)
    cluster.run(5, times * L, shares=shares)
    cluster.wake(0)
    cluster.run(6, times * L, shares=shares)
    assert cluster.admitted_in_limits(10, 21) < 1.25
    assert cluster.admitted_in_limits(15, 16) <= 2.0, "the limit and its burst"
    for at in range(16, 21):
        assert cluster.admitted_in_limits(at, at + 1) == pytest.approx(1.0, abs=0.12)


def test_standstill_of_conforming_account_refuses_nothing() -> None:
    cluster = Cluster(5)
    cluster.run(10, 0.8 * L)
    cluster.stand(0)
    cluster.run(5, 0.8 * L)
    cluster.wake(0)
    cluster.run(5, 0.8 * L)
    assert cluster.suppressed() == 0


def test_late_reports_let_no_account_go() -> None:
    """A missing report is no sign that the account conforms."""
    master = SuppressMaster("m", 1, limited, START_US)
    total, now_us = 0, START_US

    def report(gained: int, factor: float) -> None:
        nonlocal total
        total += gained
        master.receive(SuppressReport("n", 1, (AccountCount("a", gained, total, factor),)), now_us)

    for _ in range(100):
        now_us += 50 * MS
        report(L // 2, master.factor("a", now_us))
    held = master.factor("a", now_us)
    assert held == pytest.approx(0.9, abs=0.01)
    for _ in range(45):
        now_us += 10 * MS
        assert master.factor("a", now_us) == pytest.approx(held, abs=0.02)
    now_us += S
    assert master.factor("a", now_us) == 0.0, "the control: a silent node owes nothing"


def test_lost_counts_are_spread_over_their_time() -> None:
    """They made a burst of a second's worth when a report came again."""
    master = SuppressMaster("m", 1, limited, START_US)
    for at in range(100):
        count = AccountCount("a", 90, 90 * at, 0.0)
        master.receive(SuppressReport("n", 1, (count,), 1, 1), START_US + at * 100 * MS)
    again = AccountCount("a", 90, 90 * 150, 0.0)
    master.receive(SuppressReport("n", 1, (again,), 1, 1), START_US + 15 * S)
    assert master.factor("a", START_US + 15 * S + 30 * MS) == 0.0


def test_first_counts_alone_are_inherited() -> None:
    """Later counts repeat this master's own factor, which would hold itself."""
    master = SuppressMaster("m", 1, limited, START_US)
    for at in range(4):
        factor = 0.5 if at == 0 else 0.99
        count = AccountCount("a", 1, 1 + at, factor)
        master.receive(SuppressReport("n", 1, (count,), 1, 1), START_US + at * 50 * MS)
    assert master.factor("a", START_US + 200 * MS) == 0.5


def test_standstill_of_node_hides_no_surge() -> None:
    cluster = Cluster(5)
    cluster.run(10, 0.5 * L)
    cluster.stand(0)
    cluster.run(5, 5 * L)
    cluster.wake(0)
    cluster.run(5, 5 * L)
    assert cluster.admitted_in_limits(17, 20) == pytest.approx(1.0, abs=0.15)
