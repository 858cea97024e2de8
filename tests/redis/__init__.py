"""Real Redis and Valkey servers for tests, on loopback, by what pip or Debian brings.

`builds.py` knows the programs, `members.py` what every server has, and `server.py`, `cluster.py`
and `sentinel.py` are the three shapes. Tests ask for them by `tests/engines/redis.py` or by its
fixtures.
"""
