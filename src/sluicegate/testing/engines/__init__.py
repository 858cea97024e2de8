"""The suite that any engine can be put through; it holds the engine against one in memory.

    from sluicegate.testing.engines import EngineSuite

    class TestMyEngine(EngineSuite):
        def open_engine(self):
            return MyEngine("tcp://localhost:4711")

What an engine promises is written in `contracts/engine.py`; each test here is one sentence of that.
`stage.py` asks the engine and compares, and the other files hold the stories. Each story has spaces
of its own, drops them afterwards, and asks some hundred times at most, so an engine behind a
network is put through in a minute. A story that is about one engine alone does not belong here.
"""

import pytest

# Only then does a failed assert in a story say what was compared.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "ends",
            "lasting",
            "places",
            "races",
            "scans",
            "shared",
            "spaces",
            "stage",
            "tales",
            "walks",
        )
    )
)

from sluicegate.testing.engines.suite import (  # noqa: E402
    DurableEngineSuite,
    EngineSuite,
    SharedEngineSuite,
)
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial, resolve  # noqa: E402

__all__ = [
    "DurableEngineSuite",
    "EngineChecks",
    "EngineSuite",
    "EngineTrial",
    "SharedEngineSuite",
    "resolve",
]
