"""Redis and Valkey for the decision path: one multiplexed connection a node, scripts, no pools.

`url`, `script` and `slots` are values; `connection` knows bytes and order, `node` one server's
health, `lookout` the pace of asking, `cluster` and `sentinel` which node has a key; `topology`
opens one of them by its URL. Each may know those before it in that row, `wire/resp` and `hiredis`;
none knows what a limit is. Limits are upstairs: `counting` says them to the scripts (`scripts`, and
the `.lua` files) and reads the answers, `batch` has them travel together, `store` is the contract's
store, `threads` serves those without a loop. redis-py is for administration and for tests, never
for a decision.
"""
