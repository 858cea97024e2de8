"""The trial: worlds, workloads, faults and drills on virtual time, running the production code.

The lab holds no policy of its own, and nothing imports it. What is judged comes from the policies
and kernels; what it is compared with stands in `baselines`.
"""
