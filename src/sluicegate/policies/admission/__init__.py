"""Admission: one queue and one limit in front of each resource (`gate.py`).

`resource.py` holds the limit, the queue and the times of one resource, `settings.py` the settings
of a gate, and `pressure.py` a summary of all resources for status pages.
"""
