"""Nodes that are masters of each other's accounts, on one hand-moved clock."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import final

import pytest

from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import FactorMessage, SuppressReport
from sluicegate.policies.suppress_master import AccountLimit
from sluicegate.testing import SeededChance

S = 1_000_000
STEP_US = 10_000
DELAY_US = 20_000
L = 500
START_US = 1_000_000_000_000_000


def limit_of(_: str) -> AccountLimit | None:
    return AccountLimit(L)


@final
class Nodes:
    """A cluster. `alive` answer and are attempted; what the others were told is up to the test."""

    def __init__(self, count: int = 5, *, seed: int = 1, loss: float = 0.0) -> None:
        self.now_us = START_US
        self.rng = random.Random(seed)
        self.loss = loss
        self.names = [f"n{number}" for number in range(count)]
        self.alive: dict[str, AccountLimiter] = {}
        for name in self.names:
            self.start(name)
        self.tell(self.names)
        self.on_the_way: list[tuple[int, str, str, SuppressReport | FactorMessage]] = []
        self.messages = 0
        self.admitted: dict[str, list[int]] = {}  # of an account, each tenth of a second
        self.suppressed = Counter[str]()
        self.owed = 0.0

    def start(self, name: str, boot: int = 1) -> None:
        chance = SeededChance(self.rng.randrange(1_000))
        self.alive[name] = AccountLimiter(name, boot, limit_of, chance, self.now_us)

    def tell(self, members: Sequence[str]) -> None:
        for name in members:
            if name in self.alive:
                self.alive[name].change_members(members)

    def run(self, seconds: float, rates: dict[str, float], spread: Sequence[str] = ()) -> None:
        """Attempt each account at its rate, at nodes drawn from `spread` or all that are alive."""
        for step in range(round(seconds * S / STEP_US)):
            self.now_us += STEP_US
            for account, rate in rates.items():
                tenths = self.admitted.setdefault(account, [])
                if step % 10 == 0:
                    tenths.append(0)
                for _ in range(int(rate * STEP_US / S + self.rng.random())):
                    node = self.alive[self.rng.choice(list(spread or self.alive))]
                    permit = node.admit(Request("k", caller=account), self.now_us)
                    if isinstance(permit, Decision):
                        self.suppressed[account] += 1
                    else:
                        tenths[-1] += 1
                        permit.end(Outcome.SUCCESS, self.now_us)
            self._exchange()

    def rate(self, account: str, last_s: float) -> float:
        """What was admitted of it lately, in limits."""
        tenths = self.admitted[account][-round(last_s * 10) :]
        return sum(tenths) * 10 / len(tenths) / L

    def highest(self, account: str, since: int, span_s: float) -> float:
        """The highest rate of any span of `span_s` from a tenth of a second on, in limits."""
        width = round(span_s * 10)
        tenths = self.admitted[account][since:]
        return max(
            sum(tenths[at : at + width]) * 10 / width / L
            for at in range(max(len(tenths) - width + 1, 1))
        )

    def _exchange(self) -> None:
        for name, node in self.alive.items():
            for member, report in node.reports(self.now_us):
                self._send(name, member, report)
        due = [one for one in self.on_the_way if one[0] <= self.now_us]
        self.on_the_way = [one for one in self.on_the_way if one[0] > self.now_us]
        for _, source, target, message in due:
            if target not in self.alive:
                continue
            node = self.alive[target]
            if isinstance(message, FactorMessage):
                node.receive_factors(source, message, self.now_us)
                continue
            answer = node.receive_report(message, self.now_us)
            if answer is not None:
                self._send(target, source, answer)

    def _send(self, source: str, target: str, message: SuppressReport | FactorMessage) -> None:
        self.messages += 1
        if self.rng.random() >= self.loss:
            self.on_the_way.append((self.now_us + DELAY_US, source, target, message))


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_each_account_is_held_to_its_limit_wherever_its_master_is(loss: float) -> None:
    nodes = Nodes(loss=loss)
    rates = {"calm": 0.95 * L, "tenfold": 10.0 * L, "half more": 1.5 * L}
    nodes.run(12, rates)
    masters = {nodes.alive["n0"].master_of(account) for account in rates}
    assert len(masters) > 1
    for node in nodes.alive.values():
        assert {node.master_of(account) for account in rates} == masters
    assert nodes.suppressed["calm"] == 0
    assert 0.95 <= nodes.rate("tenfold", 4) <= 1.05
    assert 0.95 <= nodes.rate("half more", 3) <= 1.05


def test_who_conforms_is_never_rejected_though_members_come_and_go() -> None:
    nodes = Nodes()
    rates = {f"account {number}": 0.9 * L for number in range(4)}
    nodes.run(2, rates)
    for turn in range(8):
        name = nodes.names[turn % 5]
        del nodes.alive[name]
        nodes.run(0.3, rates)
        nodes.tell([one for one in nodes.names if one != name])
        nodes.run(0.7, rates)
        nodes.start(name, boot=2 + turn)
        nodes.tell(nodes.names)
        nodes.run(1, rates)
    assert nodes.suppressed.total() == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_master_that_dies_leaves_nobody_unlimited(seed: int) -> None:
    nodes = Nodes(seed=seed)
    rates = {"a": 10.0 * L, "b": 10.0 * L}
    nodes.run(6, rates)
    master = nodes.alive["n0"].master_of("a")
    others = [name for name in nodes.names if name != master]
    died = len(nodes.admitted["a"])
    del nodes.alive[master]
    nodes.run(1.5, rates)  # nobody knows yet
    nodes.tell(others)
    nodes.run(6, rates)
    for account in rates:
        assert nodes.highest(account, died, 1) <= 1.5
        assert 0.9 <= nodes.rate(account, 3) <= 1.05
    nodes.start(master, boot=2)
    back = len(nodes.admitted["a"])
    nodes.tell(nodes.names)
    nodes.run(6, rates)
    for account in rates:
        assert nodes.highest(account, back, 1) <= 1.5
        assert 0.95 <= nodes.rate(account, 3) <= 1.05


def test_a_master_that_restarts_at_once_is_believed_again() -> None:
    nodes = Nodes()
    nodes.run(20, {"a": 10.0 * L})
    master = nodes.alive["n0"].master_of("a")
    nodes.start(master, boot=2)
    nodes.tell(nodes.names)
    back = len(nodes.admitted["a"])
    nodes.run(4, {"a": 10.0 * L})
    assert nodes.highest("a", back, 1) <= 1.5
    assert 0.95 <= nodes.rate("a", 2) <= 1.05
    nodes.run(5, {"a": 0.5 * L})
    assert nodes.rate("a", 2) >= 0.45  # its word that all is well counts too
    assert all(node.factor("a", nodes.now_us) == 0.0 for node in nodes.alive.values())


def test_an_account_at_rest_is_let_go_by_its_new_master_too() -> None:
    nodes = Nodes()
    nodes.run(5, {"a": 10.0 * L})
    master = nodes.alive["n0"].master_of("a")
    del nodes.alive[master]
    nodes.tell([name for name in nodes.names if name != master])
    nodes.run(30, {"a": 0.0})
    assert all(node.factor("a", nodes.now_us) == 0.0 for node in nodes.alive.values())


def test_a_node_that_has_nothing_of_an_account_any_more_takes_no_part_of_it() -> None:
    nodes = Nodes()
    nodes.run(5, {"a": 3.0 * L, "b": 1.0})
    # All moves to one node; the others are idle, not cut off.
    nodes.run(70, {"a": 3.0 * L}, spread=["n0"])
    assert 0.95 <= nodes.rate("a", 20) <= 1.05


def test_messages_go_where_there_is_something_to_say() -> None:
    nodes = Nodes(20)
    account = "lonely"
    master = nodes.alive["n0"].master_of(account)
    node = next(name for name in nodes.names if name != master)
    nodes.run(10, {account: 10.0}, spread=[node])
    # A report every 50 ms while something is attempted, an answer to each; nobody else speaks.
    assert 100 <= nodes.messages <= 2 * 10 * 20 + 2
    nodes.run(61, {account: 0.0})
    nodes.run(1, {account: 0.0})
    before = nodes.messages
    nodes.run(5, {account: 0.0})
    assert nodes.messages == before


def test_a_node_names_itself_among_the_members() -> None:
    limiter = AccountLimiter("n0", 1, limit_of, SeededChance(1), START_US)
    with pytest.raises(BadValue, match="name this node, 'n0', too"):
        limiter.change_members(["n1", "n2"])
    assert list(limiter.members) == ["n0"]
