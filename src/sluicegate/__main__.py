"""`python -m sluicegate` is `sluicegate`."""

from __future__ import annotations

import sys

from sluicegate.cli import main

sys.exit(main())
