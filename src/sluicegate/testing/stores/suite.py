"""Suite: all stories as one class; a subclass says how its store is opened."""

from __future__ import annotations

from sluicegate.testing.stores.crowds import Crowds, Shared
from sluicegate.testing.stores.ends import Ends
from sluicegate.testing.stores.groups import Groups
from sluicegate.testing.stores.keys import Keys
from sluicegate.testing.stores.settlements import Settlements
from sluicegate.testing.stores.takes import Takes


class StoreSuite(Takes, Keys, Groups, Settlements, Crowds, Ends):
    """Every promise of `contracts/store.py`, as tests.

    Subclass it as `Test...` and say `open_store`. A store whose clock is moved by hand says
    `pass_time` too; one on real time needs nothing, and the suite waits some seconds in all.
    """


class SharedStoreSuite(StoreSuite, Shared):
    """The same for a store on a server: `open_store` opens one place, however often."""
