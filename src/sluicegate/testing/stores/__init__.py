"""The suite that any store can be put through; it holds the store against the kernels.

    from sluicegate.testing.stores import StoreSuite

    class TestMyStore(StoreSuite):
        def open_store(self):
            return MyStore("tcp://localhost:4711")

What a store promises is written in `contracts/store.py`; each test here is one sentence of that.
`oracle.py` says what should be answered, `stage.py` asks the store and compares, and the other
files hold the stories. A story that is about one store alone does not belong here.
"""

import pytest

# Only then does a failed assert in a story say what was compared.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in ("crowds", "ends", "groups", "keys", "settlements", "stage", "takes")
    )
)

from sluicegate.testing.stores.oracle import Oracle  # noqa: E402
from sluicegate.testing.stores.stage import StoreTrial  # noqa: E402
from sluicegate.testing.stores.suite import SharedStoreSuite, StoreSuite  # noqa: E402

__all__ = ["Oracle", "SharedStoreSuite", "StoreSuite", "StoreTrial"]
