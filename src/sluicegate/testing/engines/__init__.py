"""The suite that any engine can be put through; it compares the engine with one in memory.

    from sluicegate.testing.engines import EngineSuite

    class TestMyEngine(EngineSuite):
        def open_engine(self):
            return MyEngine("tcp://localhost:4711")

What an engine promises is written in `contracts/engine.py`; each test here is one sentence of that.
`trial.py` runs an operation on both engines and compares; the other files hold the checks. Each
check has spaces of its own, drops them afterwards, and makes some hundred calls at most, so an
engine behind a network takes a minute. A check of one engine alone does not belong here.
"""

# ruff: noqa: E402 - the checks are imported once pytest rewrites their asserts
import pytest

# Only then does a failed assert in a check say what was compared.
for _name in (
    "concurrency",
    "durability",
    "edges",
    "points",
    "random_operations",
    "scans",
    "trial",
):
    pytest.register_assert_rewrite(f"{__name__}.{_name}")

from sluicegate.testing.engines.concurrency import ConcurrencyChecks
from sluicegate.testing.engines.durability import DurabilityChecks, SharingChecks
from sluicegate.testing.engines.edges import EdgeChecks, SpaceChecks
from sluicegate.testing.engines.points import PointChecks
from sluicegate.testing.engines.random_operations import RandomChecks
from sluicegate.testing.engines.scans import ScanChecks, WalkChecks
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial, resolve

__all__ = [
    "DurableEngineSuite",
    "EngineChecks",
    "EngineSuite",
    "EngineTrial",
    "SharedEngineSuite",
    "resolve",
]


class EngineSuite(
    PointChecks, ScanChecks, WalkChecks, SpaceChecks, ConcurrencyChecks, RandomChecks, EdgeChecks
):
    """Every promise of `contracts/engine.py` that one engine can break by itself.

    Subclass it as `Test...` and define `open_engine`.
    """


class DurableEngineSuite(EngineSuite, DurabilityChecks):
    """The same where values outlive the engine object: `open_engine` opens one place again."""


class SharedEngineSuite(DurableEngineSuite, SharingChecks):
    """The same where several may be open at once: `open_engine` opens one place, however often."""
