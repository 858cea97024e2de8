"""The RESP door: commands in, replies out; any Redis client can ask.

`protocol` has a connection's bytes and the order of its replies, `session` what one has said of
itself, `table` what a table of commands is, `commands` the rows that every table has, and `errors`
the words of refusal. Two services are served so, each by a table of its own: `limiter_commands`,
with `checks` and `stores` in its rows, and `kv_commands`, with the `kv_` files in its. Nothing here
decides: each row asks the service.
"""
