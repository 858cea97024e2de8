"""The pub/sub service: what is accepted is durable, and is delivered or its loss is announced.

settings, command    flags; the step from them to a service
account_limits       what each account may, from a file; usage_file is what it has used
node_settings        flags of one node of a cluster
nodes, feed, moves   channels whose home is another node: passed on, read once, and moved
channel, history     messages in their order: one channel, and the window on the log of them all
histories            the parts of the log that have their home here
presence             who is in a channel
service              publish, subscribe and read, each with its limits
top, accounts_view   accounts over the nodes, live; demo is a cluster to look at
session, send_pace   a WebSocket connection, and what it may be sent in a second
fan_out              what is written to them all; reading_group is what those have who are as far
handler, page, app   HTTP and server-sent events; the page; the parts in their order
"""
