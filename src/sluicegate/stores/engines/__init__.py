"""Engines: the storage engines of the key-value dispatcher, each behind `contracts.engine.Engine`,
each held to the same suite (`sluicegate.testing.engines`)."""
