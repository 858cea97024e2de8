"""Admission: one queue and one limit in front of each resource (`gate.py`).

`resource.py` holds the limit, the queue and the times of one resource, `settings.py` the settings
of a gate, `fleet.py` shares the slots of several dispatchers, and `pressure.py` is a summary of all
resources for status pages. `utilization_gate.py` sheds by class as one number rises.
"""
