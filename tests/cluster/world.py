"""A cluster's account limiters on one hand-moved clock, and the network between them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import final

from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import FactorMessage, SuppressReport
from sluicegate.policies.suppression.suppress import SuppressSettings
from sluicegate.policies.suppression.suppress_master import AccountLimit, SuppressMasterSettings
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

    def __init__(
        self,
        count: int = 5,
        *,
        seed: int = 1,
        loss: float = 0.0,
        node: SuppressSettings | None = None,
        master: SuppressMasterSettings | None = None,
    ) -> None:
        self.node = node
        self.master = master
        self.cut: set[str] = set()  # from all others, not from each other
        self.standing: set[str] = set()  # stopped nodes; their messages wait
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
        self.alive[name] = AccountLimiter(
            name, boot, limit_of, chance, self.now_us, node=self.node, master=self.master
        )

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
                    name = self.rng.choice(list(spread or self.alive))
                    if name in self.standing:
                        continue
                    node = self.alive[name]
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

    def beyond(self, account: str) -> float:
        """The most that any span admitted beyond the limit, burst included, in limit-seconds."""
        most = level = 0.0
        for tenth in self.admitted[account]:
            level = max(level + tenth / L - 0.1, 0.0)
            most = max(most, level)
        return most

    def _exchange(self) -> None:
        awake = [name for name in self.alive if name not in self.standing]
        due = [
            one for one in self.on_the_way if one[0] <= self.now_us and one[2] not in self.standing
        ]
        self.on_the_way = [one for one in self.on_the_way if one not in due]
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
        for name in awake:
            for member, report in self.alive[name].reports(self.now_us):
                self._send(name, member, report)

    def _send(self, source: str, target: str, message: SuppressReport | FactorMessage) -> None:
        self.messages += 1
        if self.rng.random() >= self.loss and (source in self.cut) == (target in self.cut):
            self.on_the_way.append((self.now_us + DELAY_US, source, target, message))
