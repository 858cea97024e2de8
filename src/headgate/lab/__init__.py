"""The trial: worlds, workloads, faults and drills on virtual time, running the production code.

The lab holds no policy of its own, and nothing imports it.
"""
