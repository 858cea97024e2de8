"""Admission: one queue and one limit in front of each resource (`gate.py`)."""
