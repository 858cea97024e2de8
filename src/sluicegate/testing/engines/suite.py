"""Suite: all stories as one class; a subclass says how its engine is opened."""

from __future__ import annotations

from sluicegate.testing.engines.concurrency import ConcurrencyChecks
from sluicegate.testing.engines.durability import DurabilityChecks
from sluicegate.testing.engines.edges import EdgeChecks
from sluicegate.testing.engines.points import PointChecks
from sluicegate.testing.engines.random_operations import RandomChecks
from sluicegate.testing.engines.scans import ScanChecks
from sluicegate.testing.engines.shared import SharingChecks
from sluicegate.testing.engines.spaces import SpaceChecks
from sluicegate.testing.engines.walks import WalkChecks


class EngineSuite(
    PointChecks, ScanChecks, WalkChecks, SpaceChecks, ConcurrencyChecks, RandomChecks, EdgeChecks
):
    """Every promise of `contracts/engine.py` that one engine can break by itself.

    Subclass it as `Test...` and say `open_engine`.
    """


class DurableEngineSuite(EngineSuite, DurabilityChecks):
    """The same where values outlive the engine object: `open_engine` opens one place again."""


class SharedEngineSuite(DurableEngineSuite, SharingChecks):
    """The same where several may be open at once: `open_engine` opens one place, however often."""
