"""Limits kept by a rate-limit service elsewhere: `headgate://host:port` in the place of a Redis.

The connection, its time-outs and its breaker are those of `stores/redis`; what is asked is here.
"""
