"""What the product is compared with, at its honest best; never a policy of the product itself.

Each file is one family, and says what each of its members is and is not. `TABLE` has the lines of
the kernel-only mode by name.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.baselines.admission_levels import cinnamon, dagor, pid
from sluicegate.lab.baselines.codel import folly_codel, packet_codel
from sluicegate.lab.baselines.credits import breakwater
from sluicegate.lab.baselines.entry_rates import top_full
from sluicegate.lab.baselines.queues import bounded_fifo, no_control, plain_lifo
from sluicegate.lab.baselines.rate_gates import static_rate, token_rate
from sluicegate.lab.kernel_mode import MakeQueue

TABLE: Final[dict[str, MakeQueue]] = {
    "bounded-fifo": bounded_fifo,
    "breakwater": breakwater,
    "cinnamon": cinnamon,
    "dagor": dagor,
    "folly": folly_codel,
    "fifo": no_control,
    "rfc8289": packet_codel,
    "pid": pid,
    "lifo": plain_lifo,
    "static-qps": static_rate,
    "token-bucket": token_rate,
    "topfull": top_full,
}

__all__ = ["TABLE", "no_control"]
