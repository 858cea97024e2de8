"""The rate-limit service over HTTP: checks, leases, the audit, and Envoy's question as JSON.

Forms read what comes, routes say which path leads where.
"""
