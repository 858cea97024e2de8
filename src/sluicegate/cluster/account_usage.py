"""Account usage: one process's part in counting what accounts use up and hold over a cluster.

Meter and master in one (`policies/quota/usage.py`, `policies/quota/usage_master.py`), as
`account_limiter.py` is for rates: what a node's own accounts have used is settled here, without a
message. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import final

from sluicegate.contracts.usage import UsageAnswer, UsageReport
from sluicegate.policies.quota.usage import PlanOf, UsageMeter, UsageSettings
from sluicegate.policies.quota.usage_master import UsageMaster


@final
class AccountUsage:
    """`boot` must grow with every start of the node."""

    def __init__(
        self, name: str, boot: int, plan_of: PlanOf, settings: UsageSettings | None = None
    ) -> None:
        self.name = name
        self.meter = UsageMeter(name, boot, plan_of, settings)
        self._master = UsageMaster(name, settings)
        self._live: Collection[str] = ()

    @property
    def interval_us(self) -> int:
        """How often `reports` may have something."""
        return self.meter.settings.interval_us

    def reports(
        self,
        now_us: int,
        master_of: Callable[[str], str],
        live: Collection[str],
        busy: Container[str] = (),
    ) -> list[tuple[str, UsageReport]]:
        """Return what to send to which member now; what is for this node is settled here.

        What is for a member that is `busy` with the last report is kept.
        """
        meter = self.meter
        if set(live) != set(self._live):
            self._live = tuple(live)
            meter.refresh()
        out: list[tuple[str, UsageReport]] = []
        for member, report in meter.report(now_us, master_of).items():
            if member == self.name:
                meter.receive(self._master.receive(report, now_us))
            elif member in busy:
                meter.fail(report)
            else:
                out.append((member, report))
        return out

    def question(self, account: str, now_us: int, master: str) -> UsageReport | None:
        """Return what to send to an account's master to hear all it has used; None if that is
        this node, and is settled here."""
        report = self.meter.report_of(account, now_us)
        if master != self.name:
            return report
        self.meter.receive(self._master.receive(report, now_us))
        return None

    def receive_report(self, report: UsageReport, now_us: int) -> UsageAnswer:
        """Answer another node as the master."""
        return self._master.receive(report, now_us)

    def forget_node(self, name: str) -> None:
        """A node is dead: it has no connections and channels any more."""
        self._master.forget_node(name)
