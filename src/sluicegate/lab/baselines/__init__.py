"""What the product is compared with, at its honest best; never a policy of the product itself.

Each file is one baseline and says what it is and what it is not. `TABLE` has them all by name.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.baselines.bounded_fifo import BoundedFifo, bounded_fifo
from sluicegate.lab.baselines.dagor import Dagor, dagor
from sluicegate.lab.baselines.folly_codel import FollyCodel, folly_codel
from sluicegate.lab.baselines.no_control import NoControl, no_control
from sluicegate.lab.baselines.packet_codel import PacketCodel, packet_codel
from sluicegate.lab.baselines.pid import Pid, pid
from sluicegate.lab.baselines.plain_lifo import PlainLifo, plain_lifo
from sluicegate.lab.baselines.static_rate import StaticRate, static_rate
from sluicegate.lab.baselines.token_rate import TokenRate, token_rate
from sluicegate.lab.fast import MakeLine

TABLE: Final[dict[str, MakeLine]] = {
    "bounded-fifo": bounded_fifo,
    "dagor": dagor,
    "folly": folly_codel,
    "fifo": no_control,
    "rfc8289": packet_codel,
    "pid": pid,
    "lifo": plain_lifo,
    "static-qps": static_rate,
    "token-bucket": token_rate,
}

__all__ = [
    "TABLE",
    "BoundedFifo",
    "Dagor",
    "FollyCodel",
    "NoControl",
    "PacketCodel",
    "Pid",
    "PlainLifo",
    "StaticRate",
    "TokenRate",
]
