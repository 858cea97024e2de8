"""The measuring: metrics, traces and the audit ring behind a contract.

Telemetry observes, and knows nothing above the contracts. Label cardinality is bounded
here, in one place.
"""
