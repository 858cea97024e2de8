"""The RESP commands of the rate-limit service: CL.THROTTLE, checks, leases, and a store's operations.

A command reads its words, calls the service, and writes the reply; it decides nothing.
"""
