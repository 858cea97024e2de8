"""Work estimates: what requests of a table, operation and caller cost, for requests to come.

    of a caller     requests of this table, operation and caller
    of a table      requests of this table and operation by callers that are new there: it predicts
                    the first request of the next one, and is its usual time

An estimate is a `CostEstimate` (`kernels/cost_model.py`). A caller's first `YOUTH` requests teach
both; after that only its own.

Cost: a look-up. Bound: `estimates_max`; of the `LOOKS` oldest, the estimate with the fewest
requests is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.kernels.cost_model import CostEstimate, EstimateRow

LOOKS: Final = 4
YOUTH: Final = 64
WorkKind: TypeAlias = tuple[str, str, str]  # table or shard, operation, caller


class WorkRow(NamedTuple):
    """One estimate, for records and views; `caller` is empty for a whole table."""

    table: str
    operation: str
    caller: str
    estimate: EstimateRow


@final
class WorkEstimates:
    """The estimates, at most `estimates_max` of them."""

    __slots__ = ("_estimates", "estimates_max")

    def __init__(self, estimates_max: int) -> None:
        self.estimates_max = estimates_max
        self._estimates: dict[WorkKind, CostEstimate] = {}

    def find(self, kind: WorkKind) -> CostEstimate | None:
        """The caller's own, else that of its table; None if neither is known."""
        found = self._estimates.get(kind)
        if found is None and kind[2]:
            found = self._estimates.get((kind[0], kind[1], ""))
        return found

    def meet(self, kind: WorkKind, now_us: int) -> CostEstimate:
        """The caller's own; a new one begins with what its table usually takes."""
        found = self._estimates.get(kind)
        if found is None:
            found = CostEstimate()
            if kind[2]:
                found.begin_with(self.meet((kind[0], kind[1], ""), now_us))
                found.count = 0  # its rows and bytes are its own
            if len(self._estimates) >= self.estimates_max:
                self._forget()
            self._estimates[kind] = found
        return found

    def rows(self) -> list[WorkRow]:
        """All estimates, the tables' first."""
        kinds = sorted(self._estimates, key=lambda kind: kind[2] != "")
        return [WorkRow(*kind, self._estimates[kind].row()) for kind in kinds]

    def restore(self, rows: Iterable[WorkRow], now_us: int) -> None:
        """Begin with what was kept, where nothing has been learned since."""
        for row in rows:
            kind = (row.table, row.operation, row.caller)
            if kind not in self._estimates and len(self._estimates) < self.estimates_max:
                estimate = self._estimates[kind] = CostEstimate()
                estimate.restore(row.estimate, now_us)

    def __len__(self) -> int:
        return len(self._estimates)

    def _forget(self) -> None:
        estimates = self._estimates
        looked: list[WorkKind] = []
        for kind in estimates:
            looked.append(kind)
            if len(looked) == LOOKS:
                break
        least = min(looked, key=lambda kind: estimates[kind].count)
        for kind in looked:
            estimate = estimates.pop(kind)
            if kind != least:
                estimates[kind] = estimate  # behind the others: the next search looks elsewhere
