"""Starts Redis or Valkey: one server, a cluster of three masters, or a pair under sentinels.

An engine has one starter here. Redis comes in three shapes, so its starter is the package
`tests/redis`, and this file only gives them the name by which a test looks for them.
"""

from __future__ import annotations

from tests.redis.cluster import RedisCluster
from tests.redis.sentinel import RedisSentinel
from tests.redis.server import RedisServer

__all__ = ["RedisCluster", "RedisSentinel", "RedisServer"]
