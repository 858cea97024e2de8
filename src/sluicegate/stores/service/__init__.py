"""Limits kept by a rate-limit service elsewhere: `sluicegate://host:port` in the place of a Redis.

The connection, its time-outs and its breaker are those of `stores/redis`; what is asked is here.
"""
