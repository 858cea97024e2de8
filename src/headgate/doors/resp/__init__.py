"""The RESP door: commands in, replies out; any Redis client can ask.

`protocol` has a connection's bytes and the order of its replies, `session` what one has said of
itself, `commands` the table of all commands; `clients`, `checks` and `stores` are what stands in
its rows, and `errors` the words of refusal. Nothing here decides: each row asks the service.
"""
