"""Tuning: a scenario run with several values of a setting, and what each of them gains and
costs.
"""
