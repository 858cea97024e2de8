"""Quota: how much each caller may use, alone, in groups and across a fleet of dispatchers.

`request_units.py` charges a request to its caller, `leased_budget.py` divides a quota between
dispatchers, `resource_groups.py` arranges quotas in a tree, and `usage.py` counts by hour and
month.
"""
