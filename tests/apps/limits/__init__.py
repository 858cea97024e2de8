"""Tests of `sluicegate limits`, and `test_process.py` for the whole."""
