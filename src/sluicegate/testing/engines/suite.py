"""Suite: all stories as one class; a subclass says how its engine is opened."""

from __future__ import annotations

from sluicegate.testing.engines.ends import Ends
from sluicegate.testing.engines.lasting import Lasting
from sluicegate.testing.engines.places import Places
from sluicegate.testing.engines.races import Races
from sluicegate.testing.engines.scans import Scans
from sluicegate.testing.engines.shared import Shared
from sluicegate.testing.engines.spaces import Spaces
from sluicegate.testing.engines.tales import Tales
from sluicegate.testing.engines.walks import Walks


class EngineSuite(Places, Scans, Walks, Spaces, Races, Tales, Ends):
    """Every promise of `contracts/engine.py` that one engine can break by itself.

    Subclass it as `Test...` and say `open_engine`.
    """


class LastingEngineSuite(EngineSuite, Lasting):
    """The same where values outlive the engine object: `open_engine` opens one place again."""


class SharedEngineSuite(LastingEngineSuite, Shared):
    """The same where several may be open at once: `open_engine` opens one place, however often."""
