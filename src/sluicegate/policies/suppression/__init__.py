"""Suppression: a cluster holds an account to its limit without a decision on each message.

`suppress.py` is the part of a node, and `suppress_master.py` that of the master of an account.
"""
