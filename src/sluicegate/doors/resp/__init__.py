"""The RESP door: commands in, replies out; any Redis client can ask.

`protocol` has a connection's bytes and the order of its replies, `session` its state and what a
table of commands is, `connection_commands` the commands that every table has, and `errors` the
words of refusal. Two services are served so, each by a table of its own: `limiter/` and `kv/`.
Nothing here decides: each command calls the service.
"""
