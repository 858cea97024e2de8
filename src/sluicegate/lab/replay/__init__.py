"""Replay: a recorded or generated trace against a station with a policy, or, where it has no times,
against caches and counters of hot keys.
"""
