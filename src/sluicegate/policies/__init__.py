"""The judgement: kernels composed into decisions about one unit of work.

A policy is handed `now_us` and draws; it owns no clock, no event loop and no socket. Each refuses
with its own reason from `contracts/reasons.py`.
"""
