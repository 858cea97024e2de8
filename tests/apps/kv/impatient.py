"""A `sluicegate kv` that slows a caller after few refusals, however slow the machine is.

By default a caller has 200 refusals a second for free, which is more than a busy machine may do.
"""

from __future__ import annotations

import sys
from functools import partial

from sluicegate.apps.kv import app
from sluicegate.cli import main
from sluicegate.policies.quota.refusal_pace import RefusalPace, RefusalPaceSettings

SETTINGS = RefusalPaceSettings(burst=50, refusals_per_s=1, delay_us_max=1_000_000)

if __name__ == "__main__":
    vars(app)["RefusalPace"] = partial(RefusalPace, SETTINGS)
    sys.exit(main())
