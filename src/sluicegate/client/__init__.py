"""The face for callers of the service: a light client that leases, denies locally and batches.

It must stay importable without the server's dependencies: it needs `hiredis` and nothing else.
"""

from sluicegate.contracts.errors import MissingPackage

try:
    from sluicegate.client.answer import Answer
    from sluicegate.client.client import Client, ClientStats
    from sluicegate.client.sync_client import SyncClient
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("sluicegate"):
        raise
    raise MissingPackage(error.name, "redis") from None

__all__ = ["Answer", "Client", "ClientStats", "SyncClient"]
