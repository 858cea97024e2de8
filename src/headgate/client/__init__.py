"""The face for callers of the service: a light client that leases, denies locally and batches.

It must stay importable without the server's dependencies: it needs `hiredis` and nothing else.
"""

from headgate.contracts.errors import MissingPackage

try:
    from headgate.client.answer import Answer
    from headgate.client.asking import Client, ClientStats
    from headgate.client.blocking import SyncClient
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("headgate"):
        raise
    raise MissingPackage(error.name, "redis") from None

__all__ = ["Answer", "Client", "ClientStats", "SyncClient"]
