"""Account limiter: one process's part in holding accounts to their limits across a cluster.

    limiter.change_members(["a", "b", "c"], now)    whoever is alive, this node among them
    admission = limiter.admit(request, now)         at each operation; waits for nobody
    for member, report in limiter.reports(now):     every `interval_us`
        answer = ...                                the member's `receive_report(report, now)`
        limiter.receive_factors(member, answer, now)

Every node is a node for the accounts that are active on it (`policies/suppression/suppress.py`),
and the master of those that consistent hashing gives it
(`policies/suppression/suppress_master.py`). A node that is its own master of an account asks itself
within `reports`, without a message.

Members are all nodes that there are to be; masters are chosen among those that live
(`change_live`). A member that does not live keeps its part of each account, for it may be cut off
and serving, unless it is said to be dead; one that is no member any more has none.

When the members change, an account whose master is another one now is reported to it at once, with
the fraction that is rejected here; the new master goes on with that until it has seen enough by
itself. An account that keeps its master notices nothing. Nodes that disagree on the members for a
moment may admit up to the limit on each side of the disagreement.

Who has members, sockets and a clock is the caller: nothing here does I/O.

Cost: what the two policies cost; a hash of each account when it is first seen and when the members
change. At most one report a master and interval, to masters of accounts that are active here, and a
heartbeat to those where nothing has changed. Bounds: those of the policies; `NODES_MAX` members.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import Admission
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import FactorMessage, SuppressReport
from sluicegate.kernels.hash_ring import NODES_MAX, Rendezvous
from sluicegate.policies.suppression.suppress import (
    AccountView,
    Suppress,
    SuppressSettings,
    SuppressStats,
)
from sluicegate.policies.suppression.suppress_master import (
    LimitOf,
    SuppressMaster,
    SuppressMasterSettings,
    SuppressMasterStats,
)

FIRST_TERM: Final = 1


@final
class AccountLimiter:
    """Node and master in one. `boot` must grow with every start of the node."""

    __slots__ = ("_live", "_master", "_members", "_node", "_stood_us", "limit_of", "name")

    def __init__(
        self,
        name: str,
        boot: int,
        limit_of: LimitOf,
        chance: Chance,
        now_us: int,
        *,
        node: SuppressSettings | None = None,
        master: SuppressMasterSettings | None = None,
    ) -> None:
        self.name = name
        self.limit_of = limit_of
        self._node = Suppress(name, boot, chance, node, limit_of)
        self._master = SuppressMaster(name, FIRST_TERM, limit_of, now_us, master)
        self._members: frozenset[str] = frozenset((name,))
        self._live = Rendezvous({name: 1.0})
        self._node.assign(self._live.owner)
        self._stood_us = 0  # in all, as far as the master knows

    @property
    def interval_us(self) -> int:
        """How often `reports` may have something for the same member."""
        return self._node.settings.interval_us

    @property
    def early_us(self) -> int:
        """How often `reports` may have something for it when a rate has jumped."""
        return min(self._node.settings.early_us, self.interval_us)

    @property
    def members(self) -> Collection[str]:
        """The names of all nodes."""
        return self._members

    @property
    def live(self) -> Collection[str]:
        """The names of those among which masters are chosen, in their order."""
        return self._live.weights.keys()

    def change_members(self, names: Collection[str], now_us: int = 0) -> None:
        """Take over who there is; all of them live until it is said otherwise."""
        if self.name not in names:
            raise BadValue("members", ", ".join(names), f"name this node, {self.name!r}, too")
        if len(names) > NODES_MAX:
            raise BadValue("members", len(names), f"name at most {NODES_MAX} nodes")
        gone = self._members - set(names)
        self._members = frozenset(names)
        self.change_live(names, now_us)
        for member in gone:
            self._node.disconnect(member)
            self._master.forget_node(member)

    def change_live(self, names: Collection[str], now_us: int, dead: Collection[str] = ()) -> None:
        """Divide the accounts anew among these members and this one; those that stay where they
        are notice nothing.

        Those that are not `dead` for certain may be serving, and keep their part of each account.
        Without more than half of those that may be, nothing is divided anew: an account whose
        master is out of reach is held as in silence, or each side would have a master of its own;
        and a master goes by this side's part alone.
        """
        live = {self.name} | (self._members & set(names))
        dead = self._members & set(dead) - live
        absent = self._members - live - dead
        minority = len(live) <= len(absent)
        if not minority:
            self._live = Rendezvous(dict.fromkeys(live, 1.0))
            self._node.assign(self._live.owner, len(self._members))
            for member in absent | dead:
                self._node.disconnect(member)
        for member in dead:
            self._master.forget_node(member)
        self._master.divide(absent, len(live), len(self._members), now_us)

    def master_of(self, account: str) -> str:
        """Which member decides on an account."""
        return self._live.owner(account)

    def admit(self, request: Request, now_us: int) -> Admission:
        """A permit, or a refusal in the account's name (`request.caller`, `request.cost`)."""
        return self._node.admit(request, now_us)

    def is_suppressed(self, account: str, now_us: int) -> bool:
        """Whether a share of an account's operations is rejected here and now."""
        return self._node.is_suppressed(account, now_us)

    def watch(self, account: str, now_us: int) -> None:
        """Hear what is rejected of an account whose operations are counted at another node."""
        self._node.watch(account, now_us)

    def probe(self) -> SuppressReport:
        """Return a report that says nothing, to find out whether a member answers."""
        return SuppressReport(self.name, self._node.boot, (), leaving=True)

    def reports(self, now_us: int, busy: Container[str] = ()) -> list[tuple[str, SuppressReport]]:
        """Return what to send to which member now; what is for this node is settled here.

        What is for a member that is `busy` with the last report is kept.
        """
        self._skip_standstill(now_us)
        out: list[tuple[str, SuppressReport]] = []
        for member in self._node.masters:
            if member in busy:
                continue
            report = self._node.report(now_us, member)
            if report is None:
                continue
            if member == self.name:
                answer = self._master.receive(report, now_us)
                if answer is not None:
                    self._node.receive(answer, now_us, member)
            else:
                out.append((member, report))
        return out

    def receive_report(self, report: SuppressReport, now_us: int) -> FactorMessage | None:
        """Answer another node as the master; None for one from before the node's last start."""
        self._skip_standstill(now_us)
        return self._master.receive(report, now_us)

    def raise_boot(self) -> None:
        """Go on as of a later start of this node, since a member knows of one."""
        self._node.raise_boot()

    def silent_members(self, now_us: int) -> list[str]:
        """Who owes this node, as a master, a report."""
        return self._master.silent_nodes(now_us)

    def receive_factors(self, member: str, message: FactorMessage, now_us: int) -> int:
        """Take in a master's answer; return how many accounts it was new for."""
        return self._node.receive(message, now_us, member)

    def factor(self, account: str, now_us: int) -> float:
        """The fraction of an account's operations that is rejected here and now."""
        return self._node.factor(account, now_us)

    def accounts(self, now_us: int) -> list[AccountView]:
        """What this node knows of its accounts."""
        return self._node.accounts(now_us)

    def stats(self) -> tuple[SuppressStats, SuppressMasterStats]:
        """The node's side and the master's."""
        return self._node.stats(), self._master.stats()

    def _skip_standstill(self, now_us: int) -> None:
        """Let the master, too, take note of a standstill of this node."""
        stood_us = self._node.note_standstill(now_us)
        if stood_us != self._stood_us:
            self._master.skip(stood_us - self._stood_us, now_us)
            self._stood_us = stood_us
