"""What the product is compared with, at its honest best; never a policy of the product itself.

Each file is one family, and says what each of its members is and is not. `TABLE` has the lines of
the kernel-only mode by name.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.baselines.codel import folly_codel
from sluicegate.lab.baselines.queues import bounded_fifo, no_control, plain_lifo
from sluicegate.lab.baselines.rate_gates import token_rate
from sluicegate.lab.kernel_mode import MakeQueue

TABLE: Final[dict[str, MakeQueue]] = {
    "bounded-fifo": bounded_fifo,
    "folly": folly_codel,
    "fifo": no_control,
    "lifo": plain_lifo,
    "token-bucket": token_rate,
}

__all__ = ["TABLE", "no_control"]
