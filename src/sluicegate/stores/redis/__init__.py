"""Redis and Valkey for the decision path: one multiplexed connection a node, scripts, no pools.

`settings`, `script` and `slots` are values; `connection` knows bytes and order, `node` one server's
health, `topology_watch` the pace of looking where things are, `cluster` and `sentinel` which node
has a key; `client` opens one of them by its URL. Each may know those before it in that row,
`wire/resp` and `hiredis`; none knows what a limit is. Limits are above: `counters` writes them as
arguments of the scripts (the `.lua` files) and reads the replies, `batch` sends them
together, `store` is the contract's store. redis-py is for administration and tests, never for a
decision.
"""
