"""The Redis engine, on one server or a cluster: a partition lies in one slot, and scripts make its
writes one step.
"""
