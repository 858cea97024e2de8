"""Table: all drills of the dispatcher, by name."""

from __future__ import annotations

from typing import Final

from sluicegate.lab.drills import hot_key, neighbour, overload, recovery, shard, shares
from sluicegate.lab.drills.drill import Drill

TABLE: Final[dict[str, Drill]] = {
    drill.name: drill
    for drill in (
        hot_key.DRILL,
        overload.DRILL,
        neighbour.DRILL,
        shard.DRILL,
        recovery.DRILL,
        shares.DRILL,
    )
}
