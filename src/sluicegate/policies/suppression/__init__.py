"""Suppression: a cluster holds an account to its limit without a decision on each message.

`suppress.py` is the part of a node, `suppress_master.py` the part of the master of an account, and
`suppress_shares.py` divides the limit of an account between nodes.
"""
