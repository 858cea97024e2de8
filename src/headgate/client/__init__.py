"""The face for callers of the service: a light client that leases, denies locally and batches.

It must stay importable without the server's dependencies.
"""
