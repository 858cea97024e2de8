"""The RESP commands of the rate-limit service: CL.THROTTLE, checks, leases, store operations.

A command reads its words, calls the service, and writes the reply; it decides nothing.
"""
