"""The face for account-wide limits without a central store: nodes, account masters, suppression.

account_limiter.py   the part of one process, without time and sockets
account_usage.py     what accounts use up in an hour and a month, and hold, likewise
peer_health.py       which peers of a node answer
node.py              the same on a clock and sockets, among its peers
"""
